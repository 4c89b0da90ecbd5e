"""A job across the hosts of a lab that is up: mpirun, its output, and what is collected."""

import contextlib
import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import threading
import time

import hosts as machine
from config import LabError

MPIRUN = [
    "mpirun", "--allow-run-as-root", "--oversubscribe", "--map-by", "slot", "--bind-to", "none",
    "--mca", "pml", "ob1", "--mca", "btl", "tcp,self,vader",
    "--mca", "btl_tcp_if_include", "eth0", "--mca", "oob_tcp_if_include", "eth0",
    "--mca", "btl_vader_backing_directory", str(machine.SCRATCH),
    "--mca", "plm_rsh_agent", str(machine.STATE / "agent"),
]
TRACED_OPTIONS = ("--summary", "--trace")
COLLECTED = ("summary.json", "interfaces.json", "mpirun.log", "lab.yaml", "trace")


def find_weft(given):
    """The program to run: given, else built beside this folder, else on the path."""
    built = pathlib.Path(__file__).resolve().parent.parent / "build" / "release" / "weft"
    for candidate in (given, built, shutil.which("weft")):
        if candidate is not None and os.access(candidate, os.X_OK):
            return pathlib.Path(candidate).resolve()
        if given is not None:
            raise LabError(f"--weft {given} is no program that can be run", code=2)
    raise LabError("no program 'weft' in build/release or on the path; build it, or name it with "
                   "--weft FILE", code=2)


def weft_arguments(arguments, out):
    """What `weft` is started with: the user's arguments, and where to write what is collected."""
    if not arguments or arguments[0] not in ("train", "eval"):
        raise LabError("after '--' comes a command for weft: train CONFIG or eval CONFIG", code=2)
    for option in TRACED_OPTIONS:
        if any(str(word).split("=")[0] == option for word in arguments):
            raise LabError(f"{option} is the lab's: it writes into the folder of --out", code=2)
    added = ["--summary", out / "summary.json"]
    if arguments[0] == "train":
        added += ["--trace", out / "trace"]
    return [*arguments, *added]


class Job:
    """mpirun on the first host, with the ranks of all hosts; its output goes to a file."""

    def __init__(self, lab, weft, arguments, log, echo=True):
        self.lab = lab
        self.program = pathlib.Path(weft).name
        slots = ",".join(f"{host.name}:{host.ranks}" for host in lab.hosts)
        command = [*MPIRUN, "-H", slots, "-n", lab.ranks, weft, *arguments]
        self.process = subprocess.Popen(
            machine.enter_command(lab.hosts[0].name, command), stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, env=_environment(),
            start_new_session=True)
        self._copier = threading.Thread(target=self._copy, args=(log, echo), daemon=True)
        self._copier.start()

    def _copy(self, log, echo):
        with open(log, "wb") as file:
            for line in self.process.stdout:
                file.write(line)
                file.flush()
                if echo:
                    sys.stdout.write(line.decode(errors="replace"))
                    sys.stdout.flush()

    def wait(self, limit_s):
        """mpirun's exit code."""
        try:
            self.process.wait(timeout=limit_s)
        except subprocess.TimeoutExpired:
            raise LabError(f"the job did not end within --timeout {limit_s:g} s; the hosts are "
                           "taken down") from None
        self._copier.join(timeout=10)
        return self.process.returncode

    def ranks_on(self, host):
        """Numbers of the processes of a host that are ranks."""
        return [pid for pid in machine.processes(host.name) if _name_of(pid) == self.program[:15]]

    def end(self):
        """Ends what is left of it on all hosts."""
        machine.kill_processes([host.name for host in self.lab.hosts])
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._copier.join(timeout=10)


def _name_of(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/comm").read_text().strip()
    except OSError:
        return None  # has ended


def _environment():
    # The lab may itself run under a launcher; the ranks must not think that they do.
    kept = {k: v for k, v in os.environ.items()
            if not k.startswith(("OMPI_", "PMI", "PRTE_", "SLURM_"))}
    return {**kept, "TMPDIR": str(machine.SCRATCH)}


def prepare_folder(out):
    """The folder for what is collected, without what an earlier run has left there."""
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name in COLLECTED:
            path = out / name
            shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    except OSError as error:
        raise LabError(f"cannot write to --out {out}: {error}") from error


def run_program(lab, program, arguments, limit_s):
    """Runs any program of MPI to its end, with what it prints; returns mpirun's exit code."""
    job = Job(lab, program, arguments, os.devnull)
    try:
        return job.wait(limit_s)
    finally:
        job.end()


def run(lab, weft, arguments, out, limit_s, echo=True):
    """Runs a job to its end; returns mpirun's exit code and what went over each host's link."""
    before = {host.name: machine.interface_bytes(host) for host in lab.hosts}
    job = Job(lab, weft, weft_arguments(arguments, out), out / "mpirun.log", echo)
    try:
        code = job.wait(limit_s)
    finally:
        job.end()
    links = {}
    for host in lab.hosts:
        after = machine.interface_bytes(host)
        links[host.name] = {"ranks": host.ranks,
                            **{key: after[key] - before[host.name][key] for key in after}}
    _add_traced_bytes(lab, links, out / "trace")
    text = json.dumps({"version": 1, "hosts": links}, indent=1)
    (out / "interfaces.json").write_text(text + "\n")
    return code, links


def _add_traced_bytes(lab, links, folder):
    """What the ranks of each host say they sent to other hosts, in the steps that were traced."""
    for path in sorted(folder.glob("trace-*.json")):
        trace = json.loads(path.read_text())
        host = lab.host_of_rank(trace["distributedInfo"]["rank"])
        entry = links[host.name]
        entry["traced_steps"] = [trace["weft"]["first_step"], trace["weft"]["last_step"]]
        entry["traced_cross_host_bytes"] = entry.get("traced_cross_host_bytes", 0) + sum(
            event["args"]["cross_host_bytes"] for event in trace["traceEvents"]
            if event.get("cat") == "cpu_op" and "cross_host_bytes" in event["args"])


def table(links):
    """What went over the links, as lines of text."""
    traced = [entry["traced_steps"] for entry in links.values() if "traced_steps" in entry]
    lines = [f"{'host':16} {'ranks':>5} {'sent':>12} {'received':>12}" +
             (f" {'sent by trace':>14}" if traced else "")]
    for name, entry in links.items():
        line = f"{name:16} {entry['ranks']:5} {_megabytes(entry['sent_bytes']):>12} " \
               f"{_megabytes(entry['received_bytes']):>12}"
        if "traced_cross_host_bytes" in entry:
            line += f" {_megabytes(entry['traced_cross_host_bytes']):>14}"
        lines.append(line)
    if traced:
        lines.append(f"The links are counted from the job's start to its end, the trace from step "
                     f"{traced[0][0]} to {traced[0][1] - 1}.")
    return lines


def _megabytes(count):
    return f"{count / 1e6:.2f} MB"


def wait_until(condition, limit_s):
    """Waits for a condition; returns the seconds it took, or None."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > limit_s:
            return None
        time.sleep(0.02)
    return time.monotonic() - begin
