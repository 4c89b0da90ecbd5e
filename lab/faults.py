"""Faults planted on the last host of a lab, and what weft has to make of each.

Every fault has hosts and a job of its own. Ranks that lose a peer must end, with an error that
names it; a job that is slowed must end with the same weights, and its trace must name the host.
"""

import dataclasses
import json
import re
import shlex
import subprocess
import time

import hosts as machine
import job as jobs
from config import ConfigError, LabError

TIMEOUT_S = 5  # train.timeout_s of the jobs that lose a peer
END_S = 2 * TIMEOUT_S  # after an error a rank waits so long for peers that do not come to the end
SLACK_S = 60  # for a loaded machine
LAUNCHER_S = 3  # for mpirun to end after the ranks; without an answer of a daemon it never does
START_S = 120
SLOW_CPUS = 0.1
SLOW_RATE_MBIT = 40
TRACED_STEPS = "3:18"

JOB = {
    "version": 1,
    "seed": 3,
    "batch_size": 2048,
    "data": {"format": "synthetic", "synthetic": {
        "samples": 100_000, "eval_samples": 0, "dense_columns": 3,
        "columns": [{"name": "a{1..8}", "cardinality": 5000}]}},
    "dense_features": [{"name": "d{1..3}", "transform": "log"}],
    "sparse_features": [{"name": "a{1..8}", "mapping": "identity"}],
    "tables": [{"name": "a{1..8}", "num_embeddings": 5000, "embedding_dim": 32}],
    "model": {"type": "dlrm", "bottom_mlp": [64, 32], "top_mlp": [256, 128]},
    # One exchange at a time, so that its time is its own.
    "train": {"steps": 18, "log_every": 1, "overlap": False},
}


@dataclasses.dataclass
class Outcome:
    fault: str
    host: str
    seconds: float | None
    until: str  # what the seconds are
    wrong: list  # what was not as it must be
    said: str  # by weft
    launcher: int | None  # exit code of mpirun; None if it did not end by itself


class Bench:
    """What the faults share: the lab, the program, a folder, the hash of undisturbed weights."""

    def __init__(self, lab, weft, folder, limit_s):
        self.lab, self.weft, self.folder, self.limit_s = lab, weft, folder, limit_s
        self.victim = lab.hosts[-1]
        self.others = lab.hosts[:-1]
        self.job = folder / "job.yaml"
        self.job.write_text(json.dumps(JOB, indent=1))
        self._hash = None

    @property
    def victim_ranks(self):
        return range(self.lab.ranks - self.victim.ranks, self.lab.ranks)

    def undisturbed_hash(self):
        """Of the same job with ranks as threads of one process."""
        if self._hash is None:
            path = self.folder / "local.json"
            self.run_weft("train", self.job, "--ranks", self.lab.ranks, "--quiet", "--threads", 1,
                          "--summary", path)
            self._hash = json.loads(path.read_text())["weights_hash"]
        return self._hash

    def run_weft(self, *arguments):
        """weft on the machine itself, outside the lab; returns what it printed."""
        command = [str(word) for word in (self.weft, *arguments)]
        try:
            done = subprocess.run(command, capture_output=True, text=True, timeout=self.limit_s)
        except subprocess.TimeoutExpired:
            raise LabError(f"'{shlex.join(command)}' did not end within {self.limit_s:g} s") \
                from None
        if done.returncode != 0:
            raise LabError(f"'{shlex.join(command)}' failed: {done.stderr.strip()}")
        return done.stdout


def _lose(bench, fault, plant):
    """A peer is lost in the middle of an endless job."""
    out = bench.folder / fault
    jobs.prepare_folder(out)
    metrics = out / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    with machine.hosts_up(bench.lab):
        job = jobs.Job(bench.lab, bench.weft,
                       ["train", bench.job, "--threads", "1", "--out", out,
                        "--set", "train.steps=1000000000", "--set", f"train.timeout_s={TIMEOUT_S}"],
                       out / "mpirun.log", echo=False)
        try:
            _wait_for_steps(job, metrics)
            plant(bench.victim)
            seconds = jobs.wait_until(lambda: not any(map(job.ranks_on, bench.others)),
                                      TIMEOUT_S + END_S + SLACK_S)
            jobs.wait_until(lambda: job.process.poll() is not None, LAUNCHER_S)
            launcher = job.process.poll()
        finally:
            job.end()
    wrong = [] if seconds is not None else ["ranks of other hosts did not end"]
    return Outcome(fault, bench.victim.name, seconds, "until the ranks of other hosts had ended",
                   wrong, "\n".join(_errors(out)), launcher)


def _wait_for_steps(job, metrics):
    def trains():
        if job.process.poll() is not None:
            raise LabError(f"the job ended before the fault; see {metrics.parent}/mpirun.log")
        return metrics.exists() and metrics.read_text().count("\n") >= 3

    if jobs.wait_until(trains, START_S) is None:
        raise LabError(f"the job did not train within {START_S} s; see {metrics.parent}/mpirun.log")


def _errors(out):
    """What the ranks and the launcher say went wrong."""
    lines = (out / "mpirun.log").read_text(errors="replace").splitlines()
    return [line.strip() for line in lines if re.search(r"weft: error: |Remote daemon: ", line)]


def _unheard(bench, fault, plant):
    """A loss of which only a timeout tells."""
    outcome = _lose(bench, fault, plant)
    if not any(re.search(rf"(?:missing|rank \d+): (?:rank \d+, )*rank {rank}\b", outcome.said)
               for rank in bench.victim_ranks):
        outcome.wrong.append(f"no error names a rank of {bench.victim.name} as missing")
    return outcome


def link_cut(bench):
    """the link of a host is cut"""
    return _unheard(bench, "link_cut", machine.cut_link)


def host_gone(bench):
    """a host is gone without a word, as when its power fails"""
    def plant(host):
        machine.cut_link(host)
        machine.kill_processes([host.name])

    return _unheard(bench, "host_gone", plant)


def host_killed(bench):
    """all processes of a host are killed; connections close, and the launcher ends the job"""
    outcome = _lose(bench, "host_killed", lambda host: machine.kill_processes([host.name]))
    if not outcome.launcher:
        outcome.wrong.append(f"mpirun did not end with an error, but with {outcome.launcher}")
    return outcome


def _slow(bench, fault, plant):
    """A host is slow in some way from the start of a job that ends."""
    out = bench.folder / fault
    jobs.prepare_folder(out)
    with machine.hosts_up(bench.lab):
        plant(bench.victim)
        begin = time.monotonic()
        code, _ = jobs.run(bench.lab, bench.weft,
                           ["train", bench.job, "--threads", "1", "--trace-steps", TRACED_STEPS],
                           out, bench.limit_s, echo=False)
        seconds = time.monotonic() - begin
    outcome = Outcome(fault, bench.victim.name, seconds, "for the job", [], "", code)
    if code != 0:
        outcome.wrong.append(f"the job ended with {code}; see {out}/mpirun.log")
        return outcome, None
    if json.loads((out / "summary.json").read_text())["weights_hash"] != bench.undisturbed_hash():
        outcome.wrong.append("weights differ from those of the undisturbed job")
    return outcome, json.loads(bench.run_weft("trace", "report", out / "trace", "--json"))


def slow_host(bench):
    """a host has little processor time"""
    outcome, report = _slow(bench, "slow_host", lambda host: machine.set_cpus(host, SLOW_CPUS))
    if report is not None:
        first = report["stragglers"][0]
        outcome.said = (f"waited for most: rank {first['rank']}, "
                        f"{1e3 * first['waited_for']:.1f} ms per step, in {first['part']}")
        if first["rank"] not in bench.victim_ranks:
            outcome.wrong.append(f"the report names no rank of {bench.victim.name} first")
        compute = [rank["compute"] for rank in report["ranks"]]
        first_slow = bench.victim_ranks[0]
        if max(compute[first_slow:]) < 1.5 * max(compute[:first_slow]):
            outcome.wrong.append(f"no rank of {bench.victim.name} computes longer than the others")
    return outcome


def slow_link(bench):
    """the link of a host is slow"""
    outcome, report = _slow(bench, "slow_link",
                            lambda host: machine.set_rate(host, SLOW_RATE_MBIT))
    if report is not None:
        links = [link for link in report["links"] if link["from"] != link["to"]]
        outcome.said = "\n".join(
            [f"{link['from']} to {link['to']}: {link['bytes'] / link['seconds'] / 1e6:.1f} MB/s"
             for link in links] + [finding["text"] for finding in report["findings"]])
        # Of two hosts both have the slow link.
        named = [finding["name"] for finding in report["findings"] if finding["kind"] == "slow_link"]
        if len(bench.lab.hosts) > 2 and named != [bench.victim.name]:
            outcome.wrong.append(f"the report does not name the link of {bench.victim.name}")
        mean = report["mean"]
        shares = ("compute", "lookup", "waiting", "other", "idle")
        if any(mean[share] > mean["moving"] for share in shares):
            outcome.wrong.append("moving is not the largest share of a step")
    return outcome


FAULTS = {fault.__name__: fault
          for fault in (link_cut, host_gone, host_killed, slow_host, slow_link)}


def run_all(lab, weft, folder, only, limit_s):
    """Runs the faults one after the other, prints and writes what they showed; the exit code."""
    if len(lab.hosts) < 2:
        raise ConfigError(f"{lab.path}: hosts: faults need two hosts or more, this lab has one")
    _make_folder(folder)
    bench = Bench(lab, weft, folder, limit_s)
    outcomes = []
    for name, fault in FAULTS.items():
        if only and name not in only:
            continue
        print(f"{name}: {fault.__doc__}, here {bench.victim.name}", flush=True)
        outcome = fault(bench)
        outcomes.append(outcome)
        _print_outcome(outcome)
    (folder / "faults.json").write_text(json.dumps(
        {"version": 1, "faults": [dataclasses.asdict(outcome) for outcome in outcomes]},
        indent=1) + "\n")
    return int(any(outcome.wrong for outcome in outcomes))


def _make_folder(folder):
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise LabError(f"cannot write to --out {folder}: {error}") from error


def _print_outcome(outcome):
    for line in outcome.said.splitlines():
        print(f"  {line}")
    if outcome.seconds is not None:
        print(f"  {outcome.seconds:.1f} s {outcome.until}")
    print("  " + ("as it should be" if not outcome.wrong else "WRONG: " + "; ".join(outcome.wrong)),
          flush=True)
