"""The floor: what links cost on this machine where an exchange and computing overlap as well as they can.

Shaping takes processor time from the ranks, so a schedule that hides everything still loses some.
`overlap_bench` runs one dense stage beside one all-to-all across the same hosts, with the same shares
and links, as long and as large as a step's: how much longer than the longer of the two do both take?
"""

import json
import os
import pathlib
import time

import hosts as machine
import job as jobs
from config import LabError

# What rungs are called that show what a floor is measured with.
EXCHANGE = "exchange alone"  # debug.skip=[dense]: all that a step moves, and nothing beside it
COMPUTE = "compute alone"    # debug.skip=[exchange]
ROUNDS = 4        # stages and all-to-alls of one repetition
REPETITIONS = 5
LIMIT_S = 300
NAMES = {"dense stage alone": "compute_ms", "exchange alone": "exchange_ms",
         "in turn": "in_turn_ms", "at once": "at_once_ms"}


def find_program(given, weft):
    """overlap_bench: given, else beside weft."""
    program = pathlib.Path(given) if given else weft.parent / "bin" / "overlap_bench"
    if not os.access(program, os.X_OK):
        raise LabError(f"{'--overlap ' if given else ''}{program} is no program that can be run; "
                       "'scripts/pipeline' builds it, or name it with --overlap FILE", code=2)
    return program.resolve()


def arguments_of(topology, exchange, compute):
    """Of overlap_bench, so that it moves what a step does and computes as long, from the figures of
    both rungs. Of what a host sends, each of its ranks has a share for every rank of other hosts."""
    pairs = topology.ranks * (topology.world - topology.ranks)
    return {"bytes": max(1, round(exchange["shaped"]["cross_host_bytes"] / pairs)),
            "compute_ms": round(compute["free"]["step_ms"], 1)}


def measured(lab, topology, rate_mbit, results, program, folder):
    """The floor at one rate, from the rungs of it, as a list; empty where one was left out."""
    found = {one["rung"]: one for one in results}
    if EXCHANGE not in found or COMPUTE not in found:
        return []
    begin = time.monotonic()
    asked = arguments_of(topology, found[EXCHANGE], found[COMPUTE])
    kinds = {}
    for kind, rate in (("shaped", rate_mbit), ("free", None)):
        machine.set_rates(lab, rate)
        kinds[kind] = _overlap(lab, program, asked, folder / f"overlap-{kind}.json")
    floor = {"hosts": topology.hosts, "ranks": topology.ranks, "cpus": topology.cpus,
             "rate_mbit": rate_mbit, **figures_of(asked, kinds)}
    print(_line(floor, time.monotonic() - begin), flush=True)
    return [floor]


def _overlap(lab, program, asked, file):
    """Medians of one run of overlap_bench."""
    arguments = ["--rounds", ROUNDS, "--repetitions", REPETITIONS, "--bytes", asked["bytes"],
                 "--compute-ms", asked["compute_ms"], "--out", file]
    log = file.with_suffix(".log")
    job = jobs.Job(lab, program, arguments, log, echo=False)
    try:
        code = job.wait(LIMIT_S)
    finally:
        job.end()
    if code != 0:
        raise LabError(f"{program} ended with {code}: see {log}")
    results = json.loads(file.read_text())["results"]
    return {NAMES[one["name"]]: one["median"] / ROUNDS for one in results if one["name"] in NAMES}


def figures_of(asked, kinds):
    """Of one round. `floor_ms` is what both at once take beyond the longer of the two alone, and
    `floor_share` the same as a share of the exchange alone. `lost_ms` is what
    shaping adds: the same less that of links that are not shaped."""
    over = {kind: one["at_once_ms"] - max(one["compute_ms"], one["exchange_ms"])
            for kind, one in kinds.items()}
    return {**asked, **kinds, "floor_ms": over["shaped"],
            "floor_share": over["shaped"] / kinds["shaped"]["exchange_ms"],
            "lost_ms": over["shaped"] - over["free"]}


def _line(floor, seconds):
    shaped = floor["shaped"]
    return (f"{floor['hosts']} x {floor['ranks']}  {floor['rate_mbit']:4g} Mbit/s  the floor: "
            f"{floor['floor_ms']:.1f} ms, {100 * floor['floor_share']:.1f} % of the exchange; "
            f"alone {shaped['compute_ms']:.1f} and {shaped['exchange_ms']:.1f}, at once "
            f"{shaped['at_once_ms']:.1f}; shaping adds {floor['lost_ms']:.1f} ms; "
            f"{floor['bytes'] / 1e6:.2f} MB to each [{seconds:.0f} s]")
