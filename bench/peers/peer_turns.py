"""Turns of the comparison with peers as plain values: which there are, their order, what their figures say.

A turn is one process, or one per rank, that trains one workload from its initial values, then evaluates. A round has
every turn once; Weft and its peers alternate in it, and ratios are taken within it.
"""
import math
import statistics

SYSTEMS = {"weft": ((1, 2), (2, 1)), "torchrec": ((1, 2), (2, 1)), "pytorch": ((1, 2),)}  # ranks, threads of each
PARTS = ("total", "data", "exchange", "lookup", "dense", "update")  # of Weft's windows


def turns_of(round_number, systems):
    """System, ranks and threads in the order of a round: each peer beside Weft, every other round backwards."""
    order = [(system, *shape) for shape in ((1, 2), (2, 1)) for system in ("torchrec", "weft", "pytorch")
             if system in systems and shape in SYSTEMS[system]]
    return order if round_number % 2 == 0 else order[::-1]


def normalised_entropy(sums):
    """Of the evaluation's sums, over all ranks: mean log loss over the entropy of the mean label."""
    entropy, count, positives = (sum(s[k] for s in sums) for k in ("entropy", "count", "positives"))
    mean = positives / count
    return entropy / count / -(mean * math.log(mean) + (1 - mean) * math.log(1 - mean))


def peer_figures(ranks):
    """samples/s and NE of one turn from what its ranks report: the slowest rank's time counts."""
    return {"samples_per_s": ranks[0]["timed_samples"] / max(r["seconds"] for r in ranks), "ne": normalised_entropy(ranks)}


def weft_figures(summary, windows):
    """The same from a summary and the lines of metrics.jsonl, of all steps after the first window; and where a step's
    time went, in ms: `data` is waiting for the reader."""
    train = [w for w in windows if w["type"] == "train"]
    samples, steps = (train[-1][key] - train[0][key] for key in ("samples", "step"))
    parts = {name: 1e3 * sum(w["seconds"][name] for w in train[1:]) / steps for name in PARTS}
    return {"samples_per_s": samples / (train[-1]["elapsed_s"] - train[0]["elapsed_s"]), "ne": summary["eval"]["ne"],
            "parts_ms": parts}


def sum_of_limits(document):
    """Of what step_bench has written: milliseconds of a step whose parts are all at their limits."""
    return next(figure["limit"]["median"] for figure in document["results"] if figure["name"] == "step_ms")


def of_case(turns, workload, compute, system, ranks):
    return sorted((t for t in turns if (t["workload"], t["compute"], t["system"], t["ranks"]) ==
                   (workload, compute, system, ranks)), key=lambda t: t["round"])


def cases(turns):
    """Workload, compute, system, ranks and threads of every row of the table, in the order of the turns."""
    found = dict.fromkeys((t["workload"], t["compute"], t["ranks"], t["threads"]) for t in turns)
    return [(workload, compute, system, ranks, threads) for workload, compute, ranks, threads in found
            for system in SYSTEMS if of_case(turns, workload, compute, system, ranks)]


def beside(turns, workload, compute, system, ranks):
    """Weft's turn and the peer's of every round that has both."""
    weft = {t["round"]: t for t in of_case(turns, workload, compute, "weft", ranks)}
    return [(weft[t["round"]], t) for t in of_case(turns, workload, compute, system, ranks) if t["round"] in weft]


def ratios(turns, workload, compute, system, ranks):
    """Weft's samples/s over the peer's, round by round."""
    return [weft["samples_per_s"] / peer["samples_per_s"] for weft, peer in beside(turns, workload, compute, system, ranks)]


def ratios_at_limits(turns, workload, compute, system, ranks):
    """The same, had Weft's step taken the sum of its limits; of the rounds in which they were measured."""
    return [weft["samples_per_s"] * weft["parts_ms"]["total"] / weft["limit_ms"] / peer["samples_per_s"]
            for weft, peer in beside(turns, workload, compute, system, ranks) if "limit_ms" in weft]


def median_of(turns, key):
    return statistics.median(t[key] for t in turns)
