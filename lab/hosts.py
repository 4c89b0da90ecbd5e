"""Emulated hosts: what the kernel keeps for them, from `up` to `down`.

A host is a network namespace and a UTS namespace (its host name), joined to a switch by a veth pair
that is shaped at both ends, and a control group for its processes. The switch is a bridge in a
namespace of its own, so that the machine's own network is not touched. Nothing here has to be
remembered to be removed: names begin with `weft-lab`, and `clean` takes away whatever has them.
"""

import contextlib
import fcntl
import json
import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import time

from config import LabError

STATE = pathlib.Path("/run/weft-lab")
SCRATCH = pathlib.Path("/dev/shm/weft-lab")  # Open MPI's session folders and shared memory
SWITCH = "weft-lab.switch"
BRIDGE = "weft.bridge"  # no host can be called so
PREFIX = "weft-lab-"
TOOLS = {"ip": "iproute2", "tc": "iproute2", "nsenter": "util-linux", "unshare": "util-linux",
         "umount": "mount", "hostname": "hostname", "mpirun": "openmpi-bin"}
TOOL_LIMIT_S = 30
SETTLE_S = 0.5  # after the rates of links have changed
QUOTA_PERIOD_US = 10_000  # short, so that a step of some milliseconds meets the same share


def tool(*command):
    """Runs a tool of the system; returns what it printed."""
    command = [str(part) for part in command]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=TOOL_LIMIT_S)
    except subprocess.TimeoutExpired:
        raise LabError(f"'{shlex.join(command)}' did not end within {TOOL_LIMIT_S} s") from None
    if done.returncode != 0:
        raise LabError(f"'{shlex.join(command)}' failed: {done.stderr.strip() or 'no message'}")
    return done.stdout


def check_machine():
    """What a lab needs of the machine, short of trying it."""
    if os.geteuid() != 0:
        raise LabError("the lab makes network namespaces, links and control groups, for which the "
                       "kernel wants root: run it with sudo")
    for name, package in TOOLS.items():
        if shutil.which(name) is None:
            raise LabError(f"'{name}' is not installed; on Debian: apt-get install {package}")


@contextlib.contextmanager
def lock():
    """One lab per machine: held while a command changes or uses it, freed by the kernel after."""
    check_machine()
    STATE.mkdir(mode=0o755, exist_ok=True)
    with open(STATE / "lock", "a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            raise LabError(f"process {file.read().strip()} runs a lab on this machine; wait for "
                           "it, or end it with that number and 'kill': it takes its hosts down") \
                from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


# Control groups: version 2 alone, or the `cpu` hierarchy of version 1.

def _is_version_2():
    return pathlib.Path("/sys/fs/cgroup/cgroup.controllers").exists()


def _group_root():
    base = pathlib.Path("/sys/fs/cgroup")
    return (base if _is_version_2() else base / "cpu") / "weft-lab"


def _write(path, text):
    try:
        path.write_text(text)
    except OSError as error:
        raise LabError(f"the kernel refuses '{text}' in {path}: {error.strerror}; the lab needs "
                       "control groups with the controller 'cpu'") from error


def _make_groups(lab):
    root = _group_root()
    try:
        root.mkdir()
        for host in lab.hosts:
            (root / host.name).mkdir()
    except OSError as error:
        raise LabError(f"cannot make the control group {error.filename}: {error.strerror}; the lab "
                       "needs control groups with the controller 'cpu'") from error
    if _is_version_2() and any(host.cpus is not None for host in lab.hosts):
        for folder in (root.parent, root):
            _write(folder / "cgroup.subtree_control", "+cpu")


def set_cpus(host, cpus):
    group = _group_root() / host.name
    quota = round(cpus * QUOTA_PERIOD_US)
    if _is_version_2():
        _write(group / "cpu.max", f"{quota} {QUOTA_PERIOD_US}")
    else:
        _write(group / "cpu.cfs_period_us", str(QUOTA_PERIOD_US))
        _write(group / "cpu.cfs_quota_us", str(quota))


def processes(host_name):
    """Numbers of the processes of a host."""
    try:
        text = (_group_root() / host_name / "cgroup.procs").read_text()
    except FileNotFoundError:
        return []
    return [int(number) for number in text.split()]


def kill_processes(host_names, limit_s=10):
    end = time.monotonic() + limit_s
    while running := [pid for name in host_names for pid in processes(name)]:
        for pid in running:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > end:
            raise LabError(f"processes {running} of the lab do not end, although killed")
        time.sleep(0.02)


# Network

def _namespace(host):
    return PREFIX + host.name


def _shape(namespace, device, host, rate_mbit):
    # A burst of 2 ms lets the timer of any kernel reach the rate; 64 KiB is the largest packet.
    burst = max(65536, round(rate_mbit * 1e6 / 8 * 0.002))
    tool("tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate",
         f"{round(rate_mbit * 1000)}kbit", "burst", burst, "latency", f"{host.queue_ms}ms")


def set_rate(host, rate_mbit):
    """Shapes a host's link at both ends, for a queue shapes what leaves."""
    _shape(_namespace(host), "eth0", host, rate_mbit)
    _shape(SWITCH, host.name, host, rate_mbit)


def clear_rate(host):
    """Lets a host's link go as fast as it can."""
    for namespace, device in ((_namespace(host), "eth0"), (SWITCH, host.name)):
        if "tbf" in tool("tc", "-n", namespace, "qdisc", "show", "dev", device):
            tool("tc", "-n", namespace, "qdisc", "delete", "dev", device, "root")


def set_rates(lab, rate_mbit):
    """Gives all links of a lab one rate, or none, and waits until what their queues lost is sent again."""
    for host in lab.hosts:
        if rate_mbit is None:
            clear_rate(host)
        else:
            set_rate(host, rate_mbit)
    time.sleep(SETTLE_S)


def cut_link(host):
    """As if the cable were out: packets are lost in both directions, and nobody is told."""
    (STATE / "hosts" / host.name / "cut").touch()  # lab/agent asks
    tool("ip", "-n", SWITCH, "link", "set", "dev", host.name, "down")


def interface_bytes(host):
    """Bytes a host's interface has sent and received."""
    shown = tool("ip", "-n", _namespace(host), "-json", "-stats", "link", "show", "dev", "eth0")
    counters = json.loads(shown)[0]["stats64"]
    return {"sent_bytes": counters["tx"]["bytes"], "received_bytes": counters["rx"]["bytes"]}


def all_sent_bytes(lab):
    """Bytes that the interface of every host has sent, read at once where they come in."""
    shown = json.loads(tool("ip", "-n", SWITCH, "-json", "-stats", "link", "show"))
    received = {link["ifname"]: link["stats64"]["rx"]["bytes"] for link in shown}
    return [received[host.name] for host in lab.hosts]


def _make_switch():
    tool("ip", "netns", "add", SWITCH)
    tool("ip", "-n", SWITCH, "link", "add", "name", BRIDGE, "type", "bridge")
    tool("ip", "-n", SWITCH, "link", "set", "dev", BRIDGE, "up")


def _make_host(host):
    folder = STATE / "hosts" / host.name
    folder.mkdir(parents=True)
    (folder / "cgroup").symlink_to(_group_root() / host.name)
    namespace = _namespace(host)
    tool("ip", "netns", "add", namespace)
    (folder / "net").symlink_to(f"/run/netns/{namespace}")
    tool("ip", "-n", SWITCH, "link", "add", "name", host.name, "type", "veth",
         "peer", "name", "eth0", "netns", namespace)
    tool("ip", "-n", SWITCH, "link", "set", "dev", host.name, "mtu", host.mtu)
    tool("ip", "-n", namespace, "link", "set", "dev", "eth0", "mtu", host.mtu)
    tool("ip", "-n", SWITCH, "link", "set", "dev", host.name, "master", BRIDGE, "up")
    tool("ip", "-n", namespace, "link", "set", "dev", "lo", "up")
    tool("ip", "-n", namespace, "address", "add", f"{host.address}/24", "dev", "eth0")
    tool("ip", "-n", namespace, "link", "set", "dev", "eth0", "up")
    (folder / "uts").touch()
    tool("unshare", f"--uts={folder / 'uts'}", "hostname", host.name)
    if host.rate_mbit is not None:
        set_rate(host, host.rate_mbit)
    if host.cpus is not None:
        set_cpus(host, host.cpus)


# The whole lab; the caller holds the lock.

KEPT = STATE / "kept"


def kept_lab():
    """The file of the lab that `up` left for later commands, or None."""
    return KEPT.read_text() if KEPT.exists() else None


def keep(lab):
    """Leaves the hosts up when this program ends."""
    KEPT.write_text(lab.path)


def up(lab):
    """Makes the hosts, after cleaning what a lab that crashed has left."""
    if (other := kept_lab()) is not None:
        raise LabError(f"the hosts of {other} are up; 'lab/lab down' takes them down")
    if clean():
        print("lab: cleaned up after a lab that had crashed", flush=True)
    SCRATCH.mkdir(mode=0o700)
    for script in ("enter", "agent"):
        (STATE / script).symlink_to(pathlib.Path(__file__).resolve().parent / script)
    _make_groups(lab)
    _make_switch()
    for host in lab.hosts:
        _make_host(host)


def clean():
    """Ends and removes all that has a lab's names; says whether there was anything."""
    root = _group_root()
    groups = sorted(path.name for path in root.iterdir() if path.is_dir()) if root.exists() else []
    kill_processes(groups)
    for name in groups:
        (root / name).rmdir()
    if root.exists():
        root.rmdir()
    namespaces = [path.name for path in pathlib.Path("/run/netns").glob("weft-lab*")
                  if path.name == SWITCH or path.name.startswith(PREFIX)]
    for name in namespaces:
        tool("ip", "netns", "delete", name)
    left = [path for path in STATE.iterdir() if path.name != "lock"]
    for uts in STATE.glob("hosts/*/uts"):
        if os.stat(uts).st_dev != os.stat(STATE).st_dev:  # mounted
            tool("umount", uts)
    for path in left + [SCRATCH]:
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    return bool(groups or namespaces or left)


@contextlib.contextmanager
def hosts_up(lab):
    """The hosts of a lab while the block runs, and after it if it keeps them."""
    with lock():
        try:
            up(lab)
            yield
        finally:
            if kept_lab() is None:
                clean()


def enter_command(host_name, command):
    return [str(STATE / "enter"), host_name, shlex.join(str(part) for part in command)]
