"""The table of docs/performance.md that sets Weft beside its peers, of what bench/peers measures."""
import pathlib
import statistics
import sys

from table_text import number, spread_of_ratios

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "peers"))
import peer_turns  # noqa: E402

NAMES = {"weft": "Weft", "torchrec": "TorchRec", "pytorch": "PyTorch"}


def shape_text(ranks, threads):
    return f"{ranks} rank{'s' if ranks > 1 else ''} x {threads} thread{'s' if threads > 1 else ''}"


def head(document):
    """What was measured where and when."""
    v = document["versions"]
    peers = ", ".join(f"{name} {v[name]}" for name in ("torchrec", "fbgemm_gpu", "torch") if name in v)
    return (f"{document['processor']}, {document['cores']} cores; {document['date']}; "
            f"{document['rounds']} rounds; Weft {v['weft']}{'; ' + peers if peers else ''}.")


def compared(document):
    """Header and rows: a system's figures, and how many times as fast Weft is in the same round."""
    turns, rows = document["turns"], []
    for workload, compute, system, ranks, threads in peer_turns.cases(turns):
        mine = peer_turns.of_case(turns, workload, compute, system, ranks)
        ratios = list(peer_turns.ratios(turns, workload, compute, system, ranks))
        times = "-" if system == "weft" or not ratios else spread_of_ratios(ratios)
        ne = sorted(t["ne"] for t in mine)
        rows.append([workload, compute, shape_text(ranks, threads), NAMES[system],
                     number(peer_turns.median_of(mine, "samples_per_s")), times,
                     f"{peer_turns.median_of(mine, 'peak_bytes') / 1e9:.2f}",
                     f"{peer_turns.median_of(mine, 'ne'):.4f} ({ne[0]:.4f} to {ne[-1]:.4f})"])
    return ["workload", "compute", "ranks", "system", "samples/s", "Weft / it (least to most)", "peak memory, GB",
            "NE (least to most)"], rows


def parts(document):
    """Where Weft's steps go and what they would take at their limits: medians of the rounds, ms."""
    turns, rows = document["turns"], []
    for workload, compute, system, ranks, threads in peer_turns.cases(turns):
        if system != "weft":
            continue
        mine = peer_turns.of_case(turns, workload, compute, system, ranks)
        rows.append([workload, compute, shape_text(ranks, threads)] +
                    [number(statistics.median(t["parts_ms"][part] for t in mine)) for part in peer_turns.PARTS] +
                    at_limits(turns, workload, compute, ranks, mine))
    return ["workload", "compute", "ranks", "Weft's step", "waits for data", "exchanges", "lookup", "dense", "update",
            "sum of limits", "step / sum", "at its limits / TorchRec (least to most)"], rows


def at_limits(turns, workload, compute, ranks, mine):
    """A step's sum of limits, the step over it, and how many times as fast as TorchRec a step at its limits would be."""
    measured = [t for t in mine if "limit_ms" in t]
    if not measured:
        return ["-", "-", "-"]
    ratios = peer_turns.ratios_at_limits(turns, workload, compute, "torchrec", ranks)
    return [number(peer_turns.median_of(measured, "limit_ms")),
            f"{statistics.median(t['parts_ms']['total'] / t['limit_ms'] for t in measured):.2f}",
            spread_of_ratios(ratios) if ratios else "-"]
