"""The table of docs/performance.md that sets Weft beside its peers, of what bench/peers measures."""
import pathlib
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
    """Where Weft's steps go: medians of the rounds, ms."""
    turns, rows = document["turns"], []
    for workload, compute, system, ranks, threads in peer_turns.cases(turns):
        mine = peer_turns.of_case(turns, workload, compute, system, ranks)
        if system != "weft":
            continue
        rows.append([workload, compute, shape_text(ranks, threads)] + [
            number(peer_turns.statistics.median(t["parts_ms"][part] for t in mine)) for part in peer_turns.PARTS])
    return ["workload", "compute", "ranks", "Weft's step", "waits for data", "exchanges", "lookup", "dense", "update"], rows
