"""Jobs whose tables are larger than the memory that they may use, for scripts/tiers ladder.

Every job goes on from one checkpoint in which nearly every row has been trained on, so that a row which is not in the
cache is read and not made. What is said of a job comes from the trace of its last steps, those before being there to
fill the cache: counters at the beginning of each step say what the tiers have done.
"""
import json
import math
import os
import pathlib
import resource
import shutil
import subprocess
import time

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[1]
MIB = 1 << 20
WAITS = ("wait", "wait_for_batch")
PRODUCTION = "production"  # the law of ids of 856 tables
FEATURES_OF_ONE_TABLE = 4  # of bench/tiers_ladder.yaml
PRIORITY = -10  # of what is measured, where it may be raised: what else runs on the machine counts less


class MemoryLimit:
    """A limit of the memory of processes: a cgroup where one can be made, else that of their addresses."""

    def __init__(self, limit_bytes):
        self.bytes = limit_bytes
        self.procs = None
        name = f"weft-tiers-{os.getpid()}"
        for root, key in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
            if not (pathlib.Path(root) / "cgroup.procs").exists():
                continue  # of the other version
            folder = pathlib.Path(root) / name
            try:
                folder.mkdir()
            except OSError:
                continue
            try:
                (folder / key).write_text(str(limit_bytes))
                self.procs = folder / "cgroup.procs"
                return
            except OSError:
                folder.rmdir()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.procs is not None:
            self.procs.parent.rmdir()

    @property
    def kind(self):
        return "RLIMIT_AS" if self.procs is None else "cgroup"

    def enter(self):
        """By a process, before it becomes a program."""
        if self.procs is None:
            resource.setrlimit(resource.RLIMIT_AS, (self.bytes, self.bytes))
        else:
            self.procs.write_text(str(os.getpid()))


def set_priority(pid, priority):
    """Of all threads of a process that are there; without the right to raise it, of none."""
    try:
        for thread in os.listdir(f"/proc/{pid}/task"):
            os.setpriority(os.PRIO_PROCESS, int(thread), priority)
    except OSError:
        pass


def raise_priority_between(process, metrics, first, last):
    """Until the process ends. Its metrics have a line for every step; those of [first, last] have the priority."""
    state = "before"
    while process.poll() is None and state != "behind":
        step = 0
        if metrics.exists():
            lines = metrics.read_text().splitlines()
            step = json.loads(lines[-1]).get("step", 0) if lines and lines[-1].endswith("}") else 0
        if state == "before" and step >= first - 3:
            set_priority(process.pid, PRIORITY)
            state = "within"
        elif state == "within" and step >= last:
            set_priority(process.pid, 0)
            state = "behind"
        time.sleep(0.1)


def covered(spans):
    """The time in which one of the spans (begin, end) runs at least, and the spans of it that do not touch."""
    joined = []
    for begin, end in sorted(spans):
        if joined and begin <= joined[-1][1]:
            joined[-1][1] = max(joined[-1][1], end)
        else:
            joined.append([begin, end])
    return sum(end - begin for begin, end in joined), joined


def uncovered(spans, others):
    """The time in which one of the spans runs, and none of the others."""
    return covered([*spans, *others])[0] - covered(others)[0]


class Trace:
    """What the file of one rank says of its steps."""

    def __init__(self, path):
        document = json.loads(pathlib.Path(path).read_text())
        events = document["traceEvents"]
        spans = [e for e in events if e.get("ph") == "X"]
        steps = sorted((e["ts"], e["ts"] + e["dur"]) for e in spans if e["cat"] == "user_annotation")
        self.steps = len(steps)
        self.step_ms = (steps[-1][1] - steps[0][0]) / self.steps / 1e3
        self.kernels = [e for e in spans if e["cat"] == "kernel"]
        self.counters = {}
        for e in events:
            if e.get("ph") == "C":
                self.counters.setdefault(e["name"], []).append((e["ts"], e["args"]["value"]))

    def per_step(self, counter):
        """What a counter grows by in a step, or None where there is none of this name."""
        values = [value for _, value in sorted(self.counters.get(counter, []))]
        return (values[-1] - values[0]) / (len(values) - 1) if len(values) > 1 else None

    def exposed_ms(self, part):
        """The time of a step in which the part runs on a stream, and nothing else on any."""
        own = [(e["ts"], e["ts"] + e["dur"]) for e in self.kernels if e["name"] == part]
        others = [(e["ts"], e["ts"] + e["dur"]) for e in self.kernels if e["name"] not in (part, *WAITS)]
        return uncovered(own, others) / self.steps / 1e3

    def part_ms(self, part):
        return sum(e["dur"] for e in self.kernels if e["name"] == part) / self.steps / 1e3


def bytes_of(table):
    """Of all rows with the optimizer's state, one number per row."""
    return table["num_embeddings"] * (table["embedding_dim"] + 1) * 4


def one_table(rows=0):
    """The job of bench/tiers_ladder.yaml, or a smaller one; its law of ids is a parameter."""
    job = yaml.safe_load((SOURCE / "bench/tiers_ladder.yaml").read_text())
    if rows:
        job["tables"][0]["num_embeddings"] = rows
        job["data"]["synthetic"]["columns"][0]["cardinality"] = rows
    return job


def production(weft, table_bytes):
    """A job on the 856 production-like tables (docs/planner.md), as large as that in all.

    Dims, lengths of bags and laws of ids are theirs. Rows are scaled by a factor, and samples of a batch by a ninth of
    it, because the batch of all ranks is this one rank's, and so are the buffers for it.
    """
    made = subprocess.run([str(weft), "config", "--tables", "production:1", "--changed"], check=True, capture_output=True)
    job = yaml.safe_load(made.stdout)
    factor = table_bytes / sum(bytes_of(table) for table in job["tables"])
    for table, column in zip(job["tables"], job["data"]["synthetic"]["columns"]):
        table["num_embeddings"] = column["cardinality"] = max(2, round(table["num_embeddings"] * factor))
    job["batch_size"] = max(8, round(job["batch_size"] * factor / 9))
    job["data"]["synthetic"].update({"samples": 2000 * job["batch_size"], "eval_samples": 0})
    job["model"].update({"bottom_mlp": [64, 8], "top_mlp": [64, 32], "projection_dim": 8})  # most memory is the tables'
    job["numerics"] = {"parts": 1}
    job["sparse_optimizer"] = {"type": "row_wise_adagrad", "learning_rate": 0.001}
    for feature in job["sparse_features"]:
        feature["pooling"] = "mean"
    job["dense_optimizer"] = {"type": "sgd", "learning_rate": 1e-5}
    return job


class Ladder:
    """A job, its filled tables, and runs of it."""

    def __init__(self, weft, settings, folder, job):
        self.weft, self.settings, self.folder = pathlib.Path(weft).resolve(), settings, pathlib.Path(folder).resolve()
        self.folder.mkdir(parents=True, exist_ok=True)
        self.job = job
        self.table_bytes = sum(bytes_of(table) for table in job["tables"])
        self.row_bytes = self.table_bytes / sum(table["num_embeddings"] for table in job["tables"])
        self.filled_at = settings.fill_steps

    def write(self, job, tier="dense"):
        for table in job["tables"]:
            table["memory"] = {"tier": tier}
        job["tiers"] = {"directories": [str(self.folder / "rows")], "segment_bytes": 16 * MIB,
                        "write_buffer_bytes": 8 * MIB}
        path = self.folder / "job.json"
        path.write_text(json.dumps(job, indent=1))
        return path

    def of_law(self, law):
        """The job with this law of ids: a Zipf exponent of all columns, or the columns' own."""
        job = json.loads(json.dumps(self.job))
        if law != PRODUCTION:
            for column in job["data"]["synthetic"]["columns"]:
                column["zipf"] = law
        return job

    def filling(self):
        """The job with uniform ids and bags so long that its steps ask for a row settings.fill_times times on average."""
        job = self.of_law(0)
        features = 1 if len(job["tables"]) > 1 else FEATURES_OF_ONE_TABLE
        bags = features * job["batch_size"] * self.filled_at
        for column, feature in zip(job["data"]["synthetic"]["columns"], job["sparse_features"]):
            length = max(1, math.ceil(self.settings.fill_times * column["cardinality"] / bags))
            column.update({"min_length": length, "max_length": length})
            feature["max_length"] = length
        return job

    def train(self, config, options, limit=None, measured=(0, 0)):
        """Runs a job; steps [first, last] of it are measured. Returns its summary."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        command = [self.weft, "train", config, "--quiet", "--threads", "1", "--out", out, *options]
        errors = self.folder / "errors.txt"
        with errors.open("w") as log:
            process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log,
                                       preexec_fn=limit.enter if limit else None)
            if measured[1] > 0:
                raise_priority_between(process, out / "metrics.jsonl", *measured)
            if process.wait() != 0:
                raise SystemExit(f"scripts/tiers: {' '.join(map(str, command))}\nexit code {process.returncode}\n"
                                 f"{errors.read_text().strip()}")
        return json.loads((out / "summary.json").read_text())

    def fill(self):
        """Trains on nearly every row, all in memory, and keeps a checkpoint."""
        config = self.write(self.filling())
        self.train(config, ["--set", f"train.steps={self.filled_at}", "--checkpoint", self.folder / "filled"])

    def run(self, case, limit=None):
        """Trains a case from the filled tables on, and says what its last steps are made of."""
        first = self.filled_at + case["warm_steps"]
        last = first + self.settings.steps
        traces = self.folder / "trace"
        options = ["--resume", self.folder / "filled", "--resume-data", "from-start", "--trace", traces,
                   "--trace-steps", f"{first}:{last - 1}", "--set", f"train.steps={last}", "--set", "train.log_every=1",
                   "--set", f"pipeline.schedule={case['schedule']}"]
        if case["cache_mib"]:
            options += ["--set", f"tiers.cache_bytes={case['cache_mib'] * MIB}",
                        "--set", f"tiers.space_factor={case['space_factor']}"]
        config = self.write(self.of_law(case["law"]), "ssd" if case["cache_mib"] else "dense")
        summary = self.train(config, options, limit if case["cache_mib"] else None, (first, last))
        return {**case, **figures(summary, Trace(traces / "trace-00000.json"))}


def figures(summary, trace):
    """Of a run; what the tiers do, per step."""
    found = {"step_ms": trace.step_ms, "steps": trace.steps, "last_step": summary["last_step"],
             "state_hash": summary["state_hash"], "peak_bytes": summary["peak_rss_bytes"],
             "fetch_ms": trace.part_ms("fetch"), "exposed_fetch_ms": trace.exposed_ms("fetch")}
    for name, counter in (("asked", "rows of tiers asked for"), ("hits", "rows of tiers hit"),
                          ("read", "rows of tiers read"), ("made", "rows of tiers made"),
                          ("late", "rows of tiers late"), ("written_back", "rows of tiers written back"),
                          ("stored", "rows of disks stored"), ("moved", "rows of disks moved"),
                          ("read_bytes", "bytes of disks read")):
        found[name] = trace.per_step(counter)
    return found


def read_rate(disk_bench, folder, quick):
    """Random blocks of 4 KiB per second, now."""
    out = pathlib.Path(folder) / "disk.json"
    options = ["--quick"] if quick else ["--rounds", "3", "--seconds", "0.4"]
    process = subprocess.Popen([disk_bench, "--directory", folder, "--out", out, *options], stdout=subprocess.DEVNULL)
    set_priority(process.pid, PRIORITY)
    if process.wait() != 0:
        raise SystemExit(f"scripts/tiers: {disk_bench}: exit code {process.returncode}")
    return json.loads(out.read_text())["results"][0]["median"]
