"""The ladder: how much of a step hosts lose to the links between them, one measure after the other.

A rung is a way to run one job; a topology is so many hosts with so many ranks. For each pair the job
runs once, and in that run the links are shaped and not shaped by turns. The efficiency of a rung is
its step time without shaping over that with it: the same ranks, the same processors' share, only the
links differ. What a step moves is read from the interfaces and from the trace. With `floor` the file also
asks what the links cost here where all that can overlap does (floor.py).
"""

import dataclasses
import json
import os
import pathlib
import signal
import statistics
import subprocess
import time

import yaml

import beside
import floor
import hosts as machine
import job as jobs
from config import ConfigError, Host, Lab, LabError, check_keys

KEYS = {"version", "job", "samples", "cpus", "rate_mbit", "mtu", "turn_s", "turns", "topologies",
        "rungs"}
OPTIONAL_KEYS = {"floor"}
TOPOLOGY_KEYS = {"hosts", "ranks", "cpus", "turn_s"}
RUNG_KEYS = {"name", "options", "tables", "period", "least_hosts", "most_hosts", "rate_mbit"}
CLUSTER = pathlib.Path(__file__).resolve().parent / "ladder_cluster.yaml"
READ_S = 0.1       # from one reading of the interfaces to the next
LAST_STEP = 1_000_000
MOST_HOSTS = 250


@dataclasses.dataclass(frozen=True)
class Topology:
    hosts: int
    ranks: int  # of each
    cpus: float  # of every rank
    turn_s: float

    @property
    def world(self):
        return self.hosts * self.ranks

    def __str__(self):
        return f"{self.hosts} x {self.ranks}"


@dataclasses.dataclass(frozen=True)
class Rung:
    name: str
    options: tuple  # of weft train
    tables: dict    # what every table of the job is given
    period: int     # steps after which what a step does repeats
    least_hosts: int  # below which it is left out
    most_hosts: int   # above which it is
    rates: tuple      # of the links, Mbit/s: it runs at each

    def runs_on(self, topology):
        return self.least_hosts <= topology.hosts <= self.most_hosts


@dataclasses.dataclass(frozen=True)
class Ladder:
    job: pathlib.Path
    samples: int   # of every rank in a step
    cpus: float    # of every rank, where a topology does not say otherwise
    rate_mbit: float  # where a rung does not
    mtu: int
    turn_s: float  # of a turn with shaped links, and of one without; where a topology does not
    turns: int     # of each
    topologies: tuple
    rungs: tuple
    floor: tuple   # rates at which the floor is measured

    @property
    def rates(self):
        """All that a rung has, in the order of the file."""
        return tuple(dict.fromkeys(rate for rung in self.rungs for rate in rung.rates))


@dataclasses.dataclass
class Turn:
    """A stretch of a run in which the links stayed as they were."""
    shaped: bool
    begin_ns: int = 0
    end_ns: int = 0
    readings: list = dataclasses.field(default_factory=list)  # (ns, bytes sent by each host so far)

    def sent_bytes(self, begin_ns, end_ns):
        """Of the host that sends most, between two moments."""
        return max(b - a for a, b in zip(self._at(begin_ns), self._at(end_ns)))

    def _at(self, ns):
        """Between two readings bytes are taken to flow evenly."""
        for (begin, before), (end, after) in zip(self.readings, self.readings[1:]):
            if begin <= ns <= end:
                share = (ns - begin) / (end - begin)
                return [a + share * (b - a) for a, b in zip(before, after)]
        raise LabError(f"no reading of the interfaces at {ns}")


def read_ladder(path):
    try:
        tree = yaml.safe_load(pathlib.Path(path).read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: cannot be read: {' '.join(str(error).split())}") from error
    if not isinstance(tree, dict) or set(tree) - OPTIONAL_KEYS != KEYS or tree["version"] != 1:
        raise ConfigError(f"{path}: a ladder has version: 1 and exactly the keys {sorted(KEYS)}, "
                          f"and perhaps {sorted(OPTIONAL_KEYS)}")
    try:
        ladder = _ladder_of(path, tree)
        _check_share(ladder)
        _check_floor(ladder)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigError(f"{path}: {type(error).__name__}: {error}") from error
    return ladder


def _ladder_of(path, tree):
    job = pathlib.Path(path).parent / tree["job"]
    if not job.is_file():
        raise ConfigError(f"job: there is no file {job}")
    own = {key: _positive(tree[key], key) for key in ("cpus", "turn_s")}
    rate = _positive(tree["rate_mbit"], "rate_mbit")
    rungs = tuple(_rung_of(one, f"rungs.{i}", rate) for i, one in enumerate(tree["rungs"]))
    return Ladder(
        job=job, samples=int(tree["samples"]), rate_mbit=rate, mtu=int(tree["mtu"]),
        turns=int(tree["turns"]), **own,
        topologies=tuple(_topology_of(one, f"topologies.{i}", own)
                         for i, one in enumerate(tree["topologies"])),
        rungs=rungs, floor=_floor_rates(tree.get("floor", False), rungs))


def _topology_of(tree, where, defaults):
    check_keys(tree, TOPOLOGY_KEYS, f"{where}: ")
    return Topology(int(tree["hosts"]), int(tree["ranks"]),
                    **{key: _positive(tree.get(key, value), f"{where}.{key}")
                       for key, value in defaults.items()})


def _rung_of(tree, where, rate):
    check_keys(tree, RUNG_KEYS, f"{where}: ")
    return Rung(name=str(tree["name"]),
                options=tuple(str(word) for word in tree.get("options", [])),
                tables=dict(tree.get("tables", {})), period=int(tree.get("period", 1)),
                least_hosts=int(tree.get("least_hosts", 1)),
                most_hosts=int(tree.get("most_hosts", MOST_HOSTS)),
                rates=_rates(tree.get("rate_mbit", rate), f"{where}.rate_mbit"))


def _rates(value, where):
    """One rate or a list of them."""
    return tuple(_positive(one, where) for one in (value if isinstance(value, list) else [value]))


def _positive(value, where):
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ConfigError(f"{where}: is {value!r}; it must be a number above 0")
    return float(value)


def _floor_rates(value, rungs):
    """Rates of `floor`: true means all at which exchanges alone are measured."""
    if value is True:
        return tuple(dict.fromkeys(rate for rung in rungs if rung.name == floor.EXCHANGE
                                   for rate in rung.rates))
    return () if value is False else _rates(value, "floor")


def _check_share(ladder):
    """Ranks that together have more than the machine compute longer the more they are."""
    cores = os.cpu_count()
    for i, topology in enumerate(ladder.topologies):
        if topology.world * topology.cpus > 0.9 * cores:
            raise ConfigError(
                f"{'' if topology.cpus == ladder.cpus else f'topologies.{i}.'}cpus: "
                f"{topology.world} ranks of {topology.cpus:g} are more than 90 % of this "
                f"machine's {cores} processors; at most {0.9 * cores / topology.world:.3g}")


def _check_floor(ladder):
    """A floor is measured with what two rungs have shown of the same topology and rate."""
    for name in (floor.EXCHANGE, floor.COMPUTE) if ladder.floor else ():
        for topology in ladder.topologies:
            there = [rung for rung in ladder.rungs if rung.name == name and rung.runs_on(topology)]
            for rate in ladder.floor if topology.hosts > 1 else ():
                if not any(rate in rung.rates for rung in there):
                    raise ConfigError(f"floor: wants a rung called '{name}' at {rate:g} Mbit/s on "
                                      f"{topology.hosts} hosts")


def lab_of(ladder, topology):
    return Lab("ladder", tuple(
        Host(name=f"node{h + 1}", address=f"10.214.0.{h + 1}", ranks=topology.ranks,
             rate_mbit=ladder.rate_mbit, queue_ms=200, mtu=ladder.mtu,
             cpus=topology.cpus * topology.ranks) for h in range(topology.hosts)))


def write_cluster(topology, rate_mbit, path):
    """What a planner is told of a topology: shares of processors, and the links as shaped."""
    tree = yaml.safe_load(CLUSTER.read_text())
    tree["hosts"] = [{"count": topology.hosts, "ranks": topology.ranks}]
    compute = tree["compute"]
    rates = [(compute[key], "value") for key in ("gemm_fp32", "gemm_bf16", "copy")]
    rates += [(point, key) for point in compute["rows"]["points"] for key in ("read", "update")]
    for entry, key in rates:
        entry[key] = float(entry[key]) * topology.cpus  # PyYAML takes 1e9 for text
    for link in ("rank", "host"):
        tree["links"]["network"][link]["value"] = rate_mbit * 1e6 / 8
    path.write_text(yaml.safe_dump(tree, sort_keys=False))


def write_job(ladder, rung, path):
    """The job with what the rung gives every table."""
    tree = yaml.safe_load(ladder.job.read_text())
    for table in tree["tables"]:
        table.update(rung.tables)
    path.write_text(yaml.safe_dump(tree, sort_keys=False))


def arguments_of(ladder, topology, rung, out):
    """Of weft. In a rung's options {cluster} stands for the file that describes the topology and
    {hosts} for how many it has."""
    options = [word.replace("{cluster}", str(out / "cluster.yaml"))
               .replace("{hosts}", str(topology.hosts)) for word in rung.options]
    return ["train", out / "job.yaml", "--quiet", "--threads", "1", "--out", out / "job",
            "--set", f"batch_size={ladder.samples * topology.world}",
            "--set", f"train.steps={LAST_STEP}", "--set", "train.log_every=4", "--trace-steps", f"1:{LAST_STEP}",
            "--trace", out / "trace", *options]


def formula_bytes(topology, weft, arguments, cluster):
    """Bytes per step that the planner reckons for the host that sends most to others; of replica
    groups with the sync's, over the steps between two."""
    words = [str(word) for word in arguments]
    sets = [word for i in range(1, len(words)) if words[i - 1] == "--set"
            for word in ("--set", words[i])]
    command = [weft, "plan", words[1], "--cluster", cluster, "--format", "json", *sets]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    if done.returncode != 0:
        raise LabError(f"'{' '.join(map(str, command))}' failed: {done.stderr.strip()}")
    ranks = [rank["network_bytes"] for rank in json.loads(done.stdout)["ranks"]]
    return max(sum(ranks[first:first + topology.ranks])
               for first in range(0, topology.world, topology.ranks))


class Run:
    """One job, while whose steps go on the links change by turns."""

    def __init__(self, lab, turns, turn_s, rate_mbit):
        self.lab, self.turns, self.turn_s, self.rate_mbit = lab, turns, turn_s, rate_mbit

    def go(self, weft, arguments, out):
        job = jobs.Job(self.lab, weft, arguments, out / "mpirun.log", echo=False)
        try:
            self._wait_for_steps(job, out)
            for turn in self.turns:
                self._take(turn, job)
            os.kill(job.ranks_on(self.lab.hosts[0])[0], signal.SIGUSR1)
            code = job.wait(120)
        finally:
            job.end()
        if code not in (0, 130):
            raise LabError(f"the job of {out} ended with {code}: see {out / 'mpirun.log'}")

    def _wait_for_steps(self, job, out):
        metrics = out / "job" / "metrics.jsonl"
        started = jobs.wait_until(
            lambda: job.process.poll() is not None or
            (metrics.exists() and metrics.stat().st_size > 0), 120)
        if started is None or job.process.poll() is not None:
            raise LabError(f"the job of {out} did not train: see {out / 'mpirun.log'}")

    def _take(self, turn, job):
        machine.set_rates(self.lab, self.rate_mbit if turn.shaped else None)
        end = time.monotonic() + self.turn_s
        while len(turn.readings) < 2 or time.monotonic() < end:
            if jobs.wait_until(lambda: job.process.poll() is not None, READ_S) is not None:
                raise LabError("the job ended before its last turn; see its mpirun.log")
            turn.readings.append((time.monotonic_ns(), machine.all_sent_bytes(self.lab)))
        turn.begin_ns, turn.end_ns = turn.readings[0][0], turn.readings[-1][0]


# What a run says.

def _merged(spans):
    merged = []
    for begin, end in sorted(spans):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(merged[-1][1], end)
        else:
            merged.append([begin, end])
    return merged


def _length(spans):
    return sum(end - begin for begin, end in spans)


def _both(a, b):
    """What two merged lists have in common."""
    found, i, j = [], 0, 0
    while i < len(a) and j < len(b):
        begin, end = max(a[i][0], b[j][0]), min(a[i][1], b[j][1])
        if begin < end:
            found.append((begin, end))
        if a[i][1] < b[j][1]:
            i += 1
        else:
            j += 1
    return found


class TooFewSteps(LabError):
    """A turn without a whole period of steps."""


class Trace:
    """The steps of one rank, each with what its streams did. Times are the steady clock's ns."""

    def __init__(self, path):
        tree = json.loads(path.read_text())
        self.begin_ns = tree["weft"]["begin_ns"]
        self.steps, self.collectives, self.work = [], [], []
        for event in tree["traceEvents"]:
            if event.get("cat") == "user_annotation":
                self.steps.append(self._times(event))
            elif event.get("cat") == "kernel":
                moves = event["args"]["kind"] == "collective"
                bytes_out = event["args"]["cross_host_bytes"] if moves else 0
                (self.collectives if moves else self.work).append(
                    (*self._times(event), bytes_out))

    def _times(self, event):
        begin = self.begin_ns + event["ts"] * 1000
        return begin, begin + event["dur"] * 1000

    def figures(self, turn, period):
        """Of whole periods of steps that lie in a turn: milliseconds and bytes per step, or None."""
        steps = [step for step in self.steps if turn.begin_ns <= step[0] and
                 step[1] <= turn.end_ns]
        count = (len(steps) - 1) // period * period
        if count < 1:
            return None
        begin, end = steps[0][0], steps[count][0]  # whole steps, from begin to begin
        inside = [one for one in self.collectives if begin <= one[0] < end]
        moving = _merged((b, e) for b, e, _ in inside)
        work = _merged((b, e) for b, e, _ in self.work if begin <= b < end)
        per_step = 1e-6 / count
        return {"steps": count, "interface_bytes": turn.sent_bytes(begin, end) / count, "step_ms": (end - begin) * per_step,
                "compute_ms": _length(work) * per_step, "raw_ms": _length(moving) * per_step,
                "exposed_ms": (_length(moving) - _length(_both(moving, work))) * per_step,
                "cross_host_bytes": sum(one[2] for one in inside) / count}


def figures_of(topology, rung, turns, folder):
    """Medians over the turns of a kind; a turn's figure is the mean over ranks."""
    traces = [Trace(path) for path in sorted((folder / "trace").glob("trace-*.json"))]
    if len(traces) != topology.world:
        raise LabError(f"{folder}/trace has {len(traces)} files for {topology.world} ranks")
    found = {True: [], False: []}
    for turn in turns:
        ranks = [trace.figures(turn, rung.period) for trace in traces]
        if None in ranks:
            raise TooFewSteps(f"{folder}: no {rung.period + 1} steps in a turn of "
                              f"{(turn.end_ns - turn.begin_ns) * 1e-9:.1f} s; make turn_s longer")
        mean = {key: statistics.fmean(rank[key] for rank in ranks) for key in ranks[0]}
        hosts = [sum(rank["cross_host_bytes"] for rank in ranks[h * topology.ranks:][:topology.ranks])
                 for h in range(topology.hosts)]
        mean["cross_host_bytes"] = max(hosts)  # of the host that sends most
        found[turn.shaped].append(mean)
    medians = {shaped: {key: statistics.median(one[key] for one in of_kind) for key in of_kind[0]}
               for shaped, of_kind in found.items()}
    pairs = [free["step_ms"] / shaped["step_ms"]
             for shaped, free in zip(found[True], found[False])]
    return {"shaped": medians[True], "free": medians[False],
            "efficiency": statistics.median(pairs), "efficiency_least": min(pairs),
            "efficiency_most": max(pairs)}


def climb_beside(ladder, programs, out, only, rounds):
    """Runs every rung, or those of `only`, with programs["weft"] and with programs["beside"], in turns;
    returns their step times and ratios (beside.py)."""
    results = []
    for topology in ladder.topologies:
        lab = lab_of(ladder, topology)
        with machine.hosts_up(lab):
            for number, rung, rate in _runs_on(ladder, topology, only):
                def figures(ours):
                    name, program = (number, "weft") if ours else (f"{number}-beside", "beside")
                    return _measured(ladder, lab, topology, rung, rate, programs[program],
                                     _folder(ladder, topology, name, rate, out))
                pairs = []
                for order in beside.rounds_of(rounds):
                    found = {ours: figures(ours) for ours in order}
                    pairs.append((found[True], found[False]))
                results.append(beside.compared(pairs))
                print(beside.line(results[-1]), flush=True)
    return results


def _runs_on(ladder, topology, only):
    """What is run on a topology, rate after rate: (number of the rung, rung, rate)."""
    return [(number, rung, rate) for rate in ladder.rates for number, rung in enumerate(ladder.rungs)
            if (not only or str(number) in only) and rate in rung.rates and rung.runs_on(topology)]


def climb(ladder, programs, out, only):
    """Runs every rung, or those of `only`, on every topology; returns their figures and floors.
    What has one rate runs one after the other: such figures are subtracted from each other."""
    results, floors = [], []
    for topology in ladder.topologies:
        lab = lab_of(ladder, topology)
        with machine.hosts_up(lab):
            for rate in ladder.rates:
                fresh = [_measured(ladder, lab, topology, rung, rate, programs["weft"],
                                   _folder(ladder, topology, number, rate, out))
                         for number, rung, at in _runs_on(ladder, topology, only) if at == rate]
                results += fresh
                if rate in ladder.floor and topology.hosts > 1:
                    floors += floor.measured(lab, topology, rate, fresh, programs["overlap"],
                                             _folder(ladder, topology, "floor", rate, out))
    return results, floors


def _folder(ladder, topology, name, rate, out):
    """Where a run leaves its files."""
    folder = out / (f"{topology.hosts}x{topology.ranks}-{name}" +
                    (f"-{rate:g}" if len(ladder.rates) > 1 else ""))
    jobs.prepare_folder(folder)
    return folder


def _measured(ladder, lab, topology, rung, rate, weft, folder):
    """The figures of a rung. Where a stall of the machine has taken a turn's steps, it is run once more."""
    try:
        return _measured_once(ladder, lab, topology, rung, rate, weft, folder)
    except TooFewSteps as error:
        print(f"{error}; running it once more", flush=True)
    jobs.prepare_folder(folder)
    return _measured_once(ladder, lab, topology, rung, rate, weft, folder)


def _measured_once(ladder, lab, topology, rung, rate, weft, folder):
    begin = time.monotonic()
    write_cluster(topology, rate, folder / "cluster.yaml")
    write_job(ladder, rung, folder / "job.yaml")
    turns = [Turn(shaped) for _ in range(ladder.turns) for shaped in (True, False)]
    arguments = arguments_of(ladder, topology, rung, folder)
    Run(lab, turns, topology.turn_s, rate).go(weft, arguments, folder)
    result = {"rung": rung.name, "options": list(rung.options), "hosts": topology.hosts,
              "ranks": topology.ranks, "cpus": topology.cpus, "rate_mbit": rate,
              "formula_bytes": formula_bytes(topology, weft, arguments, folder / "cluster.yaml"),
              **figures_of(topology, rung, turns, folder)}
    print(_line(result, time.monotonic() - begin), flush=True)
    return result


def _line(result, seconds):
    shaped, free = result["shaped"], result["free"]
    return (f"{result['hosts']} x {result['ranks']}  {result['rate_mbit']:4g} Mbit/s  {result['rung']:40} "
            f"{100 * result['efficiency']:5.1f} % ({100 * result['efficiency_least']:.0f} to "
            f"{100 * result['efficiency_most']:.0f})  step {shaped['step_ms']:7.1f} ms, free "
            f"{free['step_ms']:7.1f}, compute {shaped['compute_ms']:6.1f}, exposed "
            f"{shaped['exposed_ms']:7.1f} of {shaped['raw_ms']:7.1f}, "
            f"{shaped['interface_bytes'] / 1e6:6.2f} MB by link, "
            f"{shaped['cross_host_bytes'] / 1e6:6.2f} by trace, "
            f"{result['formula_bytes'] / 1e6:6.2f} by formula, {shaped['steps']:.0f} steps "
            f"[{seconds:.0f} s]")


def document(ladder, results, floors, beside_results=()):
    """The results for bench/tables.py; those of two builds are of a program of their own."""
    return {"version": 1, "program": "ladder_beside" if beside_results else "ladder",
            "settings": {"job": ladder.job.name, "samples": ladder.samples, "cpus": ladder.cpus,
                         "rate_mbit": ladder.rate_mbit, "turn_s": ladder.turn_s,
                         "turns": ladder.turns},
            "rungs": results, "floors": floors, "beside": list(beside_results)}
