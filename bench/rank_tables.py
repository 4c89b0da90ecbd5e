"""The table of docs/performance.md that sets two ranks of a thread beside one of two (bench/two_ranks.py)."""
from table_text import number, spread_of_ratios

SHAPES = {"1 x 2": "1 rank x 2 threads", "local": "2 ranks, local x 1 thread", "mpi": "2 ranks, mpi x 1 thread"}
# Stages that only rank 0's table of parts tells apart; dense sums run beside others and are none of them.
GROUPS = {
    "dense": ("load", "forward_backward", "weight_gradients"),
    "exchanges": ("exchange_counts", "exchange_ids", "output_dist", "grad_dist", "exchange_report"),
    "lookup": ("lookup",),
    "rows' update": ("coalesce", "update_rows"),
    "dense update": ("update_dense",),
    "the rest": ("prepare", "fetch", "sync_replicas", "rest"),
}
HEADER = ["model", "batch", "compute", "ranks", "step, ms", "of 1 x 2 (least to most)", *GROUPS, "dense sums, beside"]


def head(document):
    """What was measured where."""
    return f"{document['cpu']}; {document['rounds']} rounds."


def rows(document):
    """A row for each case and shape: the step, its ratio to one rank's in the same round, and its parts, ms."""
    found = []
    for case in document["cases"]:
        for shape in case["shapes"]:
            ratios, parts = shape["ratios"], shape["parts"]
            ratio = "-" if shape["shape"] == "1 x 2" else spread_of_ratios(ratios)
            found.append([*case["case"].split("/"), SHAPES[shape["shape"]], number(shape["step_ms"]), ratio,
                          *(number(sum(parts.get(part, 0) for part in group)) for group in GROUPS.values()),
                          number(parts.get("reduce", 0))])
    return found
