"""Tests of the program lab/lab.

Usage: lab_test.py WEFT TOPIC      TOPIC: Files, Hosts or Faults
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(SOURCE / "tests" / "e2e"), str(SOURCE / "lab")]

from harness import BASE, Case, with_values  # noqa: E402  (found through the line above)

try:
    import beside  # in lab
    import floor
    import ladder
    import yaml
except ImportError:
    yaml = None

LAB = SOURCE / "lab" / "lab"
TWO_HOSTS = {"version": 1, "rate_mbit": 400, "ranks": 2, "hosts": {"alpha": None, "beta": {}}}
THREE_HOSTS = {"version": 1, "rate_mbit": 400, "hosts": {"alpha": {}, "beta": {}, "gamma": {}}}
# Nearly a megabyte per step and host, beside which starting and ending the job is little.
JOB = with_values(BASE, {"batch_size": 4096, "data.synthetic.samples": 122880,
                         "data.synthetic.eval_samples": 0, "train.eval_every": 0})
STEPS = 30
# Two groups of two ranks, each on a host: between hosts are averages of 4 MB of rows a step, and what little the
# dense model and the control blocks send.
GROUPS = with_values(BASE, {"batch_size": 512, "data.synthetic.samples": 512 * STEPS,
                            "data.synthetic.eval_samples": 0, "train.eval_every": 0,
                            "train.overlap": False,  # an average is in the trace of its step
                            "tables.0.num_embeddings": 30000, "tables.0.sharding": "row_wise",
                            "sparse_optimizer": {"type": "row_wise_adagrad"},
                            "mesh": {"groups": 2, "layout": "local_all_to_all", "sync": "dense",
                                     "sync_every": 1}})
ENDLESS = with_values(BASE, {"train.steps": 10**9, "train.log_every": 1})

# In namespaces that end with the command: what a lab asks of the kernel.
TRY_LINKS = ("ip link add veth1 type veth peer name veth2 && ip link add br1 type bridge && "
             "tc qdisc add dev veth1 root tbf rate 1mbit burst 64kb latency 50ms && hostname probe")


def is_alive(pid):
    """Whether a process runs; one that only waits for its parent to ask for its end does not."""
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def refusal():
    """Why there can be no hosts here, or None."""
    if os.geteuid() != 0:
        return "not root"
    for tool in ("ip", "tc", "unshare", "nsenter", "mpirun"):
        if shutil.which(tool) is None:
            return f"no {tool}"
    tried = subprocess.run(["unshare", "--net", "--uts", "sh", "-c", TRY_LINKS],
                           capture_output=True, text=True, timeout=30)
    if tried.returncode != 0:
        return f"the kernel refuses: {tried.stderr.strip()}"
    groups = pathlib.Path("/sys/fs/cgroup")
    is_version_2 = (groups / "cgroup.controllers").exists()
    folder = (groups if is_version_2 else groups / "cpu") / "weft-test"
    try:
        folder.mkdir()
        folder.rmdir()
    except OSError as error:
        return f"no control groups: {error}"
    if is_version_2 and "cpu" not in (groups / "cgroup.controllers").read_text():
        return "no control groups with the controller cpu"
    return None


class LabCase(Case):
    def lab(self, *args, code=0, limit=240):
        result = self.wait(self.start([sys.executable, LAB, *args]), limit)
        self.assertEqual(result.code, code, str(result))
        return result

    def refused_lab(self, *args, says, code=2):
        result = self.lab(*args, code=code)
        self.assertEqual(len(result.err.splitlines()), 1, str(result))
        for part in ("lab: error: ", *says):
            self.assertIn(part, result.err)


class Files(LabCase):
    def refused_text(self, text, *says):
        import config
        path = self.folder / "lab.yaml"
        path.write_text(text)
        with self.assertRaises(config.ConfigError) as refused:
            config.read_lab(path)
        for part in (f"{path}: ", *says):
            self.assertIn(part, str(refused.exception))

    def refused_file(self, tree, *says):
        self.refused_text(json.dumps(tree), *says)

    def test_one_line_and_exit_code(self):
        self.write({**TWO_HOSTS, "rate": 3}, "lab.yaml")
        self.refused_lab("up", "lab.yaml", says=("lab.yaml: unknown key 'rate'",))
        self.refused_lab("up", "absent.yaml", says=("absent.yaml: cannot be read",))

    def test_keys(self):
        self.refused_file({**TWO_HOSTS, "rate": 3}, "unknown key 'rate'", "'rate_mbit'?")
        self.refused_file(with_values(TWO_HOSTS, {"hosts.beta": {"cpu": 1}}),
                          "hosts.beta: unknown key 'cpu'", "'cpus'?")
        self.refused_file({**TWO_HOSTS, "version": 2}, "version: is 2")
        self.refused_text("version: true\nhosts: {a: }", "version: is True")
        self.refused_text("version: 2001-99-99\nhosts: {a: }", "is not YAML")
        self.refused_text(f"version: 1\nhosts: {{a: {{ranks: {'9' * 5000}}}}}", "is not YAML")
        self.refused_text("[" * 5000, "nested too deep")
        self.refused_text("version: 1\nhosts: {a: , a: }", "line 2: 'a' is given twice")

    def test_host_called_as_a_keyword_of_ip(self):
        """`ip link set a mtu 1500` takes `a` for the beginning of `address`."""
        import config
        import hosts
        asked = []
        self.addCleanup(setattr, hosts, "tool", hosts.tool)
        self.addCleanup(setattr, hosts, "STATE", hosts.STATE)
        hosts.tool = lambda *command: asked.append([str(part) for part in command]) or "tbf"
        hosts.STATE = self.folder
        self.write({"version": 1, "rate_mbit": 400, "hosts": {"a": None}}, "lab.yaml")
        host = config.read_lab(self.folder / "lab.yaml").hosts[0]
        hosts._make_switch()
        hosts._make_host(host)
        hosts.cut_link(host)
        hosts.clear_rate(host)
        named = [(command[i - 1], command) for command in asked if command[0] in ("ip", "tc")
                 for i, part in enumerate(command) if part == "a"]
        self.assertGreater(len(named), 5)
        for before, command in named:
            self.assertIn(before, ("dev", "name"), command)
        self.assertIsNone(config.HOST_NAME.fullmatch(hosts.BRIDGE))
        self.refused_file({"version": 1, "hosts": {"lo": None}}, "hosts.lo")

    def test_values(self):
        for key, value, permitted in (("ranks", 0, "from 1 to 256"), ("ranks", 1.5, "an integer"),
                                      ("ranks", None, "an integer"), ("ranks", True, "an integer"),
                                      ("rate_mbit", 0, "from 0.1"), ("rate_mbit", "1g", "a number"),
                                      ("cpus", 0.01, "from 0.1"), ("queue_ms", -1, "from 1"),
                                      ("mtu", 100, "from 1280")):
            self.refused_file({**TWO_HOSTS, key: value}, f"{key}: is {value!r}", permitted)
            self.refused_file({"version": 1, "hosts": {"a": {key: value}}},
                              f"hosts.a.{key}: is {value!r}", permitted)

    def test_hosts(self):
        self.refused_file({"version": 1}, "hosts: needs 1 to 250 names")
        for hosts in ({}, [], "a", 3):
            self.refused_file({"version": 1, "hosts": hosts}, "hosts: needs 1 to 250 names")
        for name in ("A", "a_b", "../a", "1a", "", "a" * 16):
            self.refused_file({"version": 1, "hosts": {name: {}}}, f"hosts.{name}: ", "at most 15")
        self.refused_file({"version": 1, "hosts": {"a": 3}}, "hosts.a: ", "keys and values")

    def test_no_yaml(self):
        for text in ("", "[", "a: b: c", "- a", "\x01", "? [1]\n: 2"):
            self.refused_text(text)

    def test_commands_for_weft(self):
        self.write(TWO_HOSTS, "lab.yaml")
        run = ["run", "lab.yaml", "--weft", self.weft, "--"]
        self.refused_lab(*run, says=("train CONFIG or eval CONFIG",))
        self.refused_lab(*run, "config", "job.yaml", says=("train CONFIG or eval CONFIG",))
        self.refused_lab(*run, "train", "job.yaml", "--trace", "t", says=("--trace is the lab's",))
        self.refused_lab(*run, "train", "job.yaml", "--summary=s", says=("--summary is the lab's",))
        self.refused_lab("run", "lab.yaml", "--weft", "absent", "--", "train", "job.yaml",
                         says=("--weft absent",))

    def test_programs(self):
        self.write(TWO_HOSTS, "lab.yaml")
        self.refused_lab("mpi", "lab.yaml", says=("after '--' comes a program",))
        self.refused_lab("mpi", "lab.yaml", "--", "./absent", says=("'./absent' is no program",))

    def test_ladders(self):
        tree = yaml.safe_load((SOURCE / "lab" / "ladder.yaml").read_text())
        tree["job"] = str(SOURCE / "lab" / tree["job"])
        file = self.folder / "ladder.yaml"
        file.write_text(yaml.safe_dump({**tree, "rates": 1}))
        self.refused_lab("ladder", file, says=["exactly the keys", "rate_mbit"])
        file.write_text(yaml.safe_dump({**tree, "rungs": [{"options": []}]}))
        self.refused_lab("ladder", file, says=["KeyError", "name"])
        file.write_text(yaml.safe_dump({**tree, "cpus": 10 * os.cpu_count()}))
        self.refused_lab("ladder", file, says=["more than 90 %", "at most"])
        file.write_text(yaml.safe_dump({**tree, "job": "gone.yaml"}))
        self.refused_lab("ladder", file, says=["gone.yaml"])
        self.refused_lab("ladder", self.folder / "none.yaml", says=["none.yaml"])

    def ladder_of(self, **changes):
        tree = yaml.safe_load((SOURCE / "lab" / "pipeline_square.yaml").read_text())
        tree = {**tree, "job": str(SOURCE / "lab" / tree["job"]), "cpus": 0.01,
                "topologies": [{"hosts": 1, "ranks": 1}, {"hosts": 4, "ranks": 2}]}
        file = self.folder / "ladder.yaml"
        file.write_text(yaml.safe_dump(with_values(tree, changes)))
        return file

    def test_keys_of_ladders(self):
        for key, value, says in (
                ("rungs.1.rate", 3, ("rungs.1: ", "'rate_mbit'?")),
                ("rungs.1.rate_mbit", 0, ("rungs.1.rate_mbit: is 0",)),
                ("rungs.1.rate_mbit", [9, "x"], ("rungs.1.rate_mbit: is 'x'",)),
                ("topologies.1.cpu", 1, ("topologies.1: ", "'cpus'?")),
                ("topologies.1.cpus", 10 * os.cpu_count(), ("topologies.1.cpus: 8 ranks",)),
                ("topologies.1.turn_s", -1, ("topologies.1.turn_s: is -1",)),
                ("rate_mbit", True, ("rate_mbit: is True",)),
                ("floor", "yes", ("floor: is 'yes'",)),
                ("floor", [120, 90], ("floor: ", "'exchange alone' at 90 Mbit/s on 4 hosts")),
                ("rungs.1.most_hosts", 2, ("floor: ", "'compute alone' at 120 Mbit/s"))):
            file = self.ladder_of(**{key: value})
            self.refused_lab("ladder", file, says=(f"{file}: ", *says))

    def test_rates_of_rungs(self):
        steps = ladder.read_ladder(self.ladder_of(**{
            "rungs.0.rate_mbit": [50, 120], "rungs.1.rate_mbit": [50, 120], "topologies.1.cpus": 0.02}))
        self.assertEqual(steps.rates, (50, 120))
        self.assertEqual(steps.floor, (50, 120))
        self.assertEqual([rung.rates for rung in steps.rungs[:3]], [(50, 120), (50, 120), (120,)])
        self.assertEqual([topology.cpus for topology in steps.topologies], [0.01, 0.02])
        self.assertEqual([rung.runs_on(steps.topologies[0]) for rung in steps.rungs[:2]], [False, True])
        host = ladder.lab_of(steps, steps.topologies[1]).hosts[0]
        self.assertEqual((host.ranks, host.cpus), (2, 0.04))
        self.assertEqual(ladder._folder(steps, steps.topologies[1], 0, 50, self.folder).name, "4x2-0-50")

    def test_ladders_of_the_project(self):
        cores = os.cpu_count
        self.addCleanup(setattr, os, "cpu_count", cores)
        os.cpu_count = lambda: 2  # for which they are written
        for name in ("ladder", "pipeline", "pipeline_square"):
            steps = ladder.read_ladder(SOURCE / "lab" / f"{name}.yaml")
            self.assertEqual(len({rung.name for rung in steps.rungs}), len(steps.rungs))

    def test_floor(self):
        topology = ladder.Topology(hosts=4, ranks=2, cpus=0.1, turn_s=1)
        asked = floor.arguments_of(topology, {"shaped": {"cross_host_bytes": 1200}},
                                   {"free": {"step_ms": 99.96}})
        self.assertEqual(asked, {"bytes": 100, "compute_ms": 100.0})  # 2 ranks to 6 others
        figures = floor.figures_of(asked, {
            "shaped": {"compute_ms": 100, "exchange_ms": 80, "at_once_ms": 120},
            "free": {"compute_ms": 100, "exchange_ms": 20, "at_once_ms": 105}})
        self.assertEqual([figures[key] for key in ("floor_ms", "floor_share", "lost_ms", "bytes")],
                         [20, 0.25, 15, 100])
        self.assertEqual(floor.measured(None, topology, 50, [{"rung": floor.EXCHANGE}], None, None), [])

    def test_beside(self):
        self.assertEqual(beside.rounds_of(3), [(True, False), (False, True), (True, False)])
        self.refused_lab("ladder", self.ladder_of(), "--weft", self.weft, "--beside", self.weft,
                         "--rounds", 0, says=("--rounds: is 0", "at least 1"))
        self.refused_lab("ladder", self.ladder_of(), "--weft", self.weft, "--beside", "gone/weft",
                         says=("gone/weft",))

        def figures(shaped, free):
            return {"rung": "rows", "hosts": 2, "ranks": 1, "rate_mbit": 20,
                    "shaped": {"step_ms": shaped}, "free": {"step_ms": free}}
        found = beside.compared([(figures(10, 3), figures(20, 2)), (figures(30, 3), figures(24, 2))])
        self.assertEqual(found["shaped"], {"step_ms": 20, "beside_ms": 22, "ratios": [0.5, 1.25]})
        self.assertEqual(found["free"], {"step_ms": 3, "beside_ms": 2, "ratios": [1.5, 1.5]})
        self.assertIn("ratio 0.88 (0.50 to 1.25)", beside.line(found))

    def test_what_streams_have_in_common(self):
        moving = ladder._merged([(0, 4), (3, 6), (10, 12)])
        self.assertEqual(moving, [[0, 6], [10, 12]])
        self.assertEqual(ladder._both(moving, [[1, 2], [5, 11]]), [(1, 2), (5, 6), (10, 11)])

    def test_wants_root(self):
        self.write(TWO_HOSTS, "lab.yaml")
        command = [sys.executable, LAB, "up", "lab.yaml"]
        if os.geteuid() == 0:  # a user namespace without a mapping: the same files, another user
            command = ["unshare", "--user", *command]
        result = self.wait(self.start(command))
        if "unshare failed" in result.err:
            self.skipTest("the kernel refuses user namespaces")
        self.assertEqual(result.code, 1, str(result))
        self.assertIn("wants root: run it with sudo", result.err)


class HostsCase(LabCase):
    def setUp(self):
        super().setUp()
        self.addCleanup(self.lab, "down")

    def assert_nothing_left(self):
        for folder in ("/run/netns", "/sys/fs/cgroup", "/sys/fs/cgroup/cpu", "/dev/shm"):
            names = os.listdir(folder) if os.path.isdir(folder) else []
            self.assertEqual([name for name in names if name.startswith("weft-lab")], [], folder)
        self.assertEqual(os.listdir("/run/weft-lab"), ["lock"])
        self.assertNotIn("weft-lab", pathlib.Path("/proc/self/mounts").read_text())


class Hosts(HostsCase):
    def run_lab(self, tree, *args):
        self.write(tree, "lab.yaml")
        return self.lab("run", "lab.yaml", "--weft", self.weft, "--out", "run", "--", "train",
                        "job.yaml", "--threads", 1, *args)

    def read(self, name):
        return json.loads((self.folder / "run" / name).read_text())

    def test_job_across_hosts(self):
        self.write(JOB)
        shown = self.run_lab(TWO_HOSTS, "--trace-steps", f"1:{STEPS}")
        self.assert_nothing_left()
        self.assert_same_bits(self.train("job.yaml", "--threads", 1, ranks=4),
                              self.read("summary.json"))
        traces = [self.read(f"trace/trace-{rank:05}.json") for rank in range(4)]
        self.assertEqual([trace["weft"]["host"] for trace in traces],
                         ["alpha", "alpha", "beta", "beta"])
        links = self.read("interfaces.json")["hosts"]
        for name, ranks in (("alpha", (0, 1)), ("beta", (2, 3))):
            traced = sum(event["args"]["cross_host_bytes"] for rank in ranks
                         for event in traces[rank]["traceEvents"]
                         if event.get("cat") == "cpu_op" and "Seq" in event["args"])
            self.assertGreater(traced, 10**6)
            link = links[name]
            self.assertEqual(link["traced_cross_host_bytes"], traced)
            self.assertEqual(link["traced_steps"], [1, STEPS + 1])
            self.assertGreater(link["sent_bytes"], traced)
            self.assertLess(link["sent_bytes"], 1.1 * traced)
        # What one sends the other receives.
        self.assertAlmostEqual(links["alpha"]["sent_bytes"], links["beta"]["received_bytes"],
                               delta=0.02 * links["alpha"]["sent_bytes"])
        self.assertIn("alpha", shown.out)
        self.assertTrue((self.folder / "run/mpirun.log").read_text())

    def test_replica_groups(self):
        """What a sync puts on the link is what weft/cost/replicas.h says of it."""
        self.write(GROUPS)
        self.run_lab(TWO_HOSTS, "--trace-steps", f"1:{STEPS}")
        self.assert_nothing_left()
        self.assert_same_bits(self.train("job.yaml", "--threads", 1, ranks=4),
                              self.read("summary.json"))
        links = self.read("interfaces.json")["hosts"]
        rows = sum(table["num_embeddings"] for table in GROUPS["tables"])
        row = 4 * GROUPS["tables"][0]["embedding_dim"] + 4
        formula = STEPS * rows * row  # 2 (M - 1)/M of it, M = 2: a group is a host
        for host, ranks in enumerate(((0, 1), (2, 3))):
            link = links[("alpha", "beta")[host]]
            crossed = {}
            for rank in ranks:
                for event in self.read(f"trace/trace-{rank:05}.json")["traceEvents"]:
                    if event.get("cat") == "cpu_op" and "Seq" in event["args"]:
                        group = event["args"]["Process Group Name"]
                        crossed[group] = crossed.get(group, 0) + event["args"]["cross_host_bytes"]
            self.assertEqual(crossed["replicas"], formula)
            self.assertEqual((crossed["ids"], crossed["vectors"]), (0, 0))
            self.assertEqual(link["traced_cross_host_bytes"], sum(crossed.values()))
            self.assertGreater(link["sent_bytes"], link["traced_cross_host_bytes"])
            self.assertLess(link["sent_bytes"], 1.1 * link["traced_cross_host_bytes"])
            self.assertLess(link["sent_bytes"], 1.1 * formula)

    def test_any_program(self):
        self.write(TWO_HOSTS, "lab.yaml")
        shown = self.lab("mpi", "lab.yaml", "--", "hostname")
        self.assertEqual(sorted(shown.out.split()), ["alpha", "alpha", "beta", "beta"])
        self.lab("mpi", "lab.yaml", "--", "false", code=1)
        self.assert_nothing_left()

    def test_ladder(self):
        tree = {"version": 1, "job": "job.yaml", "samples": 256, "cpus": 0.4, "rate_mbit": 20,
                "mtu": 1500, "turn_s": 2, "turns": 1, "topologies": [{"hosts": 2, "ranks": 1}],
                "rungs": [{"name": "rows", "tables": {"sharding": "row_wise"}},
                          {"name": "planned", "options": ["--cluster", "{cluster}"]},
                          {"name": "groups", "tables": {"sharding": "row_wise"}, "options": [
                              "--cluster", "{cluster}", "--set", "mesh.groups={hosts}", "--set",
                              "mesh.sync=dense"]}]}
        (self.folder / "ladder.yaml").write_text(yaml.safe_dump(tree))
        (self.folder / "job.yaml").write_text(
            yaml.safe_dump(with_values(BASE, {"data.synthetic.eval_samples": 0,
                                              "train.eval_every": 0})))
        self.lab("ladder", self.folder / "ladder.yaml", "--weft", self.weft,
                 "--out", self.folder / "out")
        rows, planned, groups = json.loads(
            (self.folder / "out" / "ladder.json").read_text())["rungs"]
        self.assertEqual([one["rung"] for one in (rows, planned, groups)],
                         ["rows", "planned", "groups"])
        self.assertGreater(groups["formula_bytes"], 0)
        self.assertAlmostEqual(groups["formula_bytes"], groups["shaped"]["cross_host_bytes"],
                               delta=0.1 * groups["formula_bytes"])
        self.assertIn("row_wise", (self.folder / "out" / "2x1-0" / "job" / "plan.yaml").read_text())
        for figures in (rows["shaped"], rows["free"]):
            self.assertLess(figures["exposed_ms"], figures["step_ms"])
            # Of headers and acknowledgements, and a step that a turn's end cuts.
            self.assertGreater(figures["interface_bytes"], 0.9 * figures["cross_host_bytes"])
        self.assertGreater(rows["shaped"]["step_ms"], rows["free"]["step_ms"])

    def test_ladder_beside(self):
        tree = {"version": 1, "job": "job.yaml", "samples": 256, "cpus": 0.4, "rate_mbit": 20,
                "mtu": 1500, "turn_s": 1, "turns": 1, "topologies": [{"hosts": 2, "ranks": 1}],
                "rungs": [{"name": "planned", "options": ["--cluster", "{cluster}"]},
                          {"name": "rows", "tables": {"sharding": "row_wise"}}]}
        (self.folder / "ladder.yaml").write_text(yaml.safe_dump(tree))
        (self.folder / "job.yaml").write_text(
            yaml.safe_dump(with_values(BASE, {"data.synthetic.eval_samples": 0,
                                              "train.eval_every": 0})))
        self.lab("ladder", self.folder / "ladder.yaml", "--weft", self.weft, "--beside", self.weft,
                 "--rounds", 1, "--only", 1, "--out", self.folder / "out")
        document = json.loads((self.folder / "out" / "ladder.json").read_text())
        self.assertEqual(document["rungs"], [])
        (rows,) = document["beside"]
        self.assertEqual((rows["rung"], rows["hosts"], rows["rate_mbit"]), ("rows", 2, 20))
        for state in beside.STATES:
            (ratio,) = rows[state]["ratios"]
            self.assertAlmostEqual(ratio, rows[state]["step_ms"] / rows[state]["beside_ms"])
        for name in ("2x1-1", "2x1-1-beside"):
            self.assertTrue((self.folder / "out" / name / "job" / "plan.yaml").exists(), name)

    def test_exit_code_of_the_job(self):
        self.write({**JOB, "batch_sise": 3})
        self.write(TWO_HOSTS, "lab.yaml")
        result = self.lab("run", "lab.yaml", "--weft", self.weft, "--", "train", "job.yaml", code=2)
        self.assertIn("did you mean 'batch_size'", result.out)
        self.assertFalse((self.folder / "lab-out/summary.json").exists())
        self.assert_nothing_left()

    def test_hosts_that_stay(self):
        self.lab("up", self.write(TWO_HOSTS, "lab.yaml"))
        self.assertEqual(self.lab("exec", "beta", "hostname").out, "beta\n")
        self.assertIn("10.214.0.2/24", self.lab("exec", "beta", "ip", "address").out)
        self.assertIn("400Mbit", self.lab("exec", "beta", "tc", "qdisc", "show").out)
        self.lab("exec", "beta", "sh", "-c", "exit 7", code=7)
        self.refused_lab("exec", "delta", "true", says=("no lab with host 'delta'",), code=1)
        self.refused_lab("up", "lab.yaml", says=("lab/lab down",), code=1)
        self.lab("exec", "beta", "hostname")
        self.lab("down")
        self.assert_nothing_left()

    def start_endless(self):
        """A lab with a job that is under way, and the numbers of the job's processes."""
        self.write(ENDLESS)
        self.write(TWO_HOSTS, "lab.yaml")
        process = self.start([sys.executable, LAB, "run", "lab.yaml", "--weft", self.weft, "--",
                              "train", "job.yaml", "--threads", 1, "--out", "job", "--quiet"])
        metrics = self.folder / "job/metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") >= 3, process,
                      "training")
        groups = pathlib.Path("/run/weft-lab/hosts").glob("*/cgroup/cgroup.procs")
        ranks = [int(pid) for group in groups for pid in group.read_text().split()]
        self.assertGreater(len(ranks), 4)
        return process, ranks

    def test_crashed_lab_is_cleaned(self):
        process, ranks = self.start_endless()
        self.refused_lab("down", says=(f"process {process.pid} runs a lab",), code=1)
        process.send_signal(signal.SIGKILL)
        process.wait()
        self.assertTrue(all(map(is_alive, ranks)))
        shown = self.lab("up", "lab.yaml")
        self.assertIn("a lab that had crashed", shown.out)
        self.assertFalse(any(map(is_alive, ranks)))
        self.lab("down")
        self.assert_nothing_left()

    def test_stopped_lab_cleans_up(self):
        process, ranks = self.start_endless()
        process.send_signal(signal.SIGTERM)
        self.assertEqual(self.wait(process).code, 128 + signal.SIGTERM)
        self.assertFalse(any(map(is_alive, ranks)))
        self.assert_nothing_left()


class Faults(HostsCase):
    def fault(self, name):
        self.write(THREE_HOSTS, "lab.yaml")
        self.lab("faults", "lab.yaml", "--weft", self.weft, "--out", "faults", "--only", name)
        self.assert_nothing_left()
        outcome, = json.loads((self.folder / "faults/faults.json").read_text())["faults"]
        self.assertEqual((outcome["fault"], outcome["host"], outcome["wrong"]), (name, "gamma", []))
        return outcome

    def test_link_cut(self):
        self.assertIn("rank 2", self.fault("link_cut")["said"])

    def test_host_gone(self):
        self.assertIn("rank 2", self.fault("host_gone")["said"])

    def test_host_killed(self):
        self.fault("host_killed")

    def test_slow_host(self):
        self.assertIn("rank 2", self.fault("slow_host")["said"])

    def test_slow_link(self):
        self.fault("slow_link")


TOPICS = {topic.__name__: topic for topic in (Files, Hosts, Faults)}


def main(arguments):
    if len(arguments) != 2 or arguments[1] not in TOPICS:
        sys.exit(__doc__)
    topic = TOPICS[arguments[1]]
    if yaml is None:
        print("skipped: Python has no module yaml")
        sys.exit(77)
    if issubclass(topic, HostsCase) and (why := refusal()) is not None:
        print(f"skipped: {why}")
        sys.exit(77)
    Case.weft = str(pathlib.Path(arguments[0]).resolve())
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(topic)
    sys.exit(not unittest.TextTestRunner(verbosity=2).run(suite).wasSuccessful())


if __name__ == "__main__":
    main(sys.argv[1:])
