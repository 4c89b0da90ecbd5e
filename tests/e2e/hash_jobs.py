"""Small jobs that between them run every way a step can take, for scripts/hashes.

A job is the values it sets over BASE and how it is started. All run at numerics.target sse4, at which
every x86-64 processor gives the same bits; those of OPEN choose another target, and are only ever
compared with another build on the same machine.
"""

import dataclasses
import random

import harness

SHARDINGS = ("table_wise", "row_wise", "column_wise", "data_parallel", "table_row_wise",
             "table_column_wise", "grid_shard")
OPTIMIZERS = ("sgd", "adagrad", "row_wise_adagrad", "adam", "row_wise_adam")
CODECS = ("fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4")

# Every optimizer and three types of rows at once; batches that no number of ranks divides, a last one that
# is smaller, and ids that several features share.
BASE = harness.with_values(harness.BASE, {
    "batch_size": 61,
    "data.synthetic.samples": 400,
    "data.synthetic.eval_samples": 100,
    "data.synthetic.columns.2.weighted": True,
    "sparse_features.2.pooling": "sum",
    "sparse_features.2.weighted": True,
    "tables.0.optimizer": {"type": "adagrad", "learning_rate": 0.05},
    "tables.1.dtype": "bf16",
    "tables.2.optimizer": {"type": "row_wise_adam"},
    "numerics.target": "sse4",
    "train.timeout_s": 60,
})
SEQUENCE = {
    "data.synthetic.columns.2.weighted": False,
    "sparse_features.2.weighted": False,
    "sparse_features.2.pooling": "none",
    "sparse_features.2.target": "a",
    "model.attention_mlp": [8],
}


@dataclasses.dataclass
class Job:
    name: str
    values: dict
    ranks: int = 1
    mpi: bool = False
    threads: int = 1
    resume_on: int = 0  # stopped after three steps and resumed on so many ranks
    hot_rows: bool = False  # statistics are made first
    hosts: tuple = ()  # ranks on each, where they are threads


def all_tables(key, value):
    return {f"tables.{i}.{key}": value for i in range(3)}


def mesh(groups, sync, **more):
    return {"mesh": {"groups": groups, "sync": sync, **more}}


def with_memory(job, tier):
    """The job with the rows of its tables in another memory."""
    values = job.values | all_tables("memory.tier", tier)
    if tier == "ssd":
        # Caches of a few sets, and files of a few rows, so that rows come and go.
        values |= {"tiers.directories": ["rows"], "tiers.cache_bytes": 192 << 10,
                   "tiers.segment_bytes": 1 << 16, "tiers.write_buffer_bytes": 1 << 16}
    return dataclasses.replace(job, values=values)


def jobs():
    found = [Job("one rank", {}), Job("three threads", {}, threads=3),
             Job("no overlap", {"train.overlap": False}, ranks=3),
             Job("mpi 2", {}, ranks=2, mpi=True)]
    found += [Job(f"ranks {n}", {}, ranks=n) for n in (2, 3, 5, 8)]
    found += [Job(f"{kind}, {n} ranks", all_tables("sharding", kind), ranks=n)
              for kind, n in zip(SHARDINGS, (3, 2, 4, 3, 4, 3, 4))]
    found += [
        Job("mixed shardings, mpi 3", {"tables.0.sharding": "row_wise",
                                       "tables.1.sharding": "column_wise",
                                       "tables.2.sharding": "data_parallel"}, ranks=3, mpi=True),
        Job("row_split modulo", all_tables("sharding", "row_wise") | all_tables("row_split", "modulo"),
            ranks=3),
        Job("pooled_at sample", all_tables("sharding", "row_wise") | all_tables("pooled_at", "sample"),
            ranks=3),
        Job("clustered", all_tables("sharding", "row_wise") | all_tables("pooled_at", "sample") |
            {"pipeline.cluster_parts": 2}, ranks=4),
        Job("pooled_at sample, packed ids, int8",
            all_tables("sharding", "grid_shard") | all_tables("pooled_at", "sample") |
            {"codecs.ids": "packed", "codecs.forward": "int8", "codecs.backward": "bf16"}, ranks=4),
        Job("hot rows", all_tables("hot_rows", 10) | {"tables.0.sharding": "row_wise"}, ranks=3,
            hot_rows=True),
        Job("hot rows, two groups", all_tables("hot_rows", 10) | mesh(2, "dense"), ranks=4,
            hot_rows=True),
        Job("shared table", {"sparse_features.1.table": "a",
                             "tables.0.sharding": "row_wise"}, ranks=2),
        Job("check device", {"train.device": "check", "tables.0.sharding": "row_wise",
                             "tables.2.sharding": "column_wise"}, ranks=3),
    ]
    for i, kind in enumerate(OPTIMIZERS):
        found.append(Job(f"{kind}", all_tables("optimizer", {"type": kind}) |
                         {"tables.2.sharding": "data_parallel"}, ranks=1 + i % 3))
        decay = ("l2", "decoupled")[i % 2]
        found.append(Job(f"{kind}, {decay}, max_norm", all_tables("optimizer", {
            "type": kind, "weight_decay": 0.01, "weight_decay_mode": decay, "max_norm": 0.2}),
            ranks=2))
    found += [Job(f"rows {dtype}", all_tables("dtype", dtype) | {"tables.0.sharding": sharding},
                  ranks=2)
              for dtype, sharding in (("fp16", "row_wise"), ("bf16", "column_wise"),
                                      ("split_bf16", "data_parallel"))]
    found += [Job(f"rows {dtype}, {what}",
                  all_tables("dtype", dtype) | {"tables.0.sharding": sharding, "numerics.row_draws": rule}, ranks=2)
              for rule, what in ((1, "a word each"), (2, "ten rounds"))
              for dtype, sharding in (("fp16", "row_wise"), ("bf16", "column_wise"))]
    found += [Job(f"codec {codec}", {"codecs": {
        "forward": codec, "backward": CODECS[i - 1], "dense": "bf16", "group_size": 16,
        "rounding": ("nearest", "stochastic")[i % 2]}, "tables.2.sharding": "row_wise"}, ranks=3)
              for i, codec in enumerate(CODECS)]
    found += [
        Job("codec of dense gradients, no feedback",
            {"codecs": {"dense": "int8", "error_feedback": False}}, ranks=4),
        Job("groups dense", mesh(2, "dense"), ranks=2),
        Job("groups dense, every 3", mesh(2, "dense", sync_every=3), ranks=4),
        Job("groups touched", mesh(2, "touched", sync_every=2) | {"tables.0.sharding": "row_wise"},
            ranks=4),
        Job("groups touched, int8 syncs", mesh(2, "touched", sync_every=2) |
            {"codecs": {"sync": "int8"}}, ranks=4),
        Job("groups gradients", mesh(2, "gradients"), ranks=4),
        Job("groups, local_all_reduce, check device",
            mesh(2, "dense", layout="local_all_reduce") | {"train.device": "check"}, ranks=4),
        Job("groups, mpi 4", mesh(2, "touched") | {"tables.0.sharding": "row_wise"}, ranks=4,
            mpi=True),
        Job("table sets", mesh(4, "touched", sync_every=2) |
            {"tables.0.groups": 1, "tables.1.groups": 2, "tables.0.sharding": "column_wise",
             "tables.2.sharding": "row_wise"}, ranks=8),
        Job("table sets, data_parallel", mesh(2, "gradients") |
            {"tables.0.groups": 1, "tables.1.sharding": "data_parallel"}, ranks=4),
        Job("sequence attention", SEQUENCE, ranks=2),
        Job("sequence mean, row_wise", SEQUENCE | {"model.sequence": "mean",
                                                   "tables.2.sharding": "row_wise"}, ranks=3),
        Job("dcnv2", {"model.type": "dcnv2", "model.cross_layers": 2, "model.cross_rank": 8}, ranks=2),
        Job("deepfm", {"model.type": "deepfm"}, ranks=2),
        Job("projection", {"tables.0.embedding_dim": 5, "model.projection_dim": 32}, ranks=2),
        Job("bf16 products", {"model.compute": "bf16"}, ranks=2),
        Job("dense sgd, clip, polynomial", {
            "dense_optimizer": {"type": "sgd", "learning_rate": 0.1, "clip_norm": 0.1},
            "schedule": {"type": "polynomial", "warmup_steps": 2, "decay_start": 3, "decay_steps": 4,
                         "final_factor": 0.1}}, ranks=3),
        Job("dense adagrad", {"dense_optimizer": {"type": "adagrad", "weight_decay": 0.01}}, ranks=2),
        Job("parts 7", {"numerics.parts": 7}, ranks=5),
        Job("resumed", {"tables.0.sharding": "row_wise"}, ranks=2, resume_on=3),
        Job("resumed groups", mesh(2, "dense"), ranks=4, resume_on=4),
        Job("mean pooling, no shuffle", {"sparse_features.2.weighted": False,
                                         "data.synthetic.columns.2.weighted": False,
                                         "sparse_features.2.pooling": "mean",
                                         "data.shuffle.enabled": False}, ranks=3),
    ]
    return found


# Layouts of ranks over hosts, by name: of so many ranks, how many each host has.
LAYOUTS = {
    "one host": lambda ranks: (),
    "hosts of 8": lambda ranks: (8,) * (ranks // 8) + ((ranks % 8,) if ranks % 8 else ()),
    "hosts of 2": lambda ranks: (2,) * (ranks // 2) + ((1,) if ranks % 2 else ()),
    "a host each": lambda ranks: (1,) * ranks,
    # 1, 2, 3, ... and the rest on one.
    "uneven hosts": lambda ranks: uneven(ranks),
}
FORMS = ("flat", "hierarchical")
SCHEDULES = (
    {"pipeline.schedule": "sync"}, {"pipeline.schedule": "prefetch"}, {"pipeline.schedule": "dbp"},
    {"pipeline.schedule": "fwp"}, {"pipeline.schedule": "nested", "pipeline.micro_batches": 3})
MOST_RANKS = 64


def uneven(ranks):
    sizes = []
    while ranks > len(sizes):
        sizes.append(len(sizes) + 1)
        ranks -= sizes[-1]
    return (*sizes, ranks) if ranks else tuple(sizes)


def jobs_of_any_ranks():
    """Jobs whose bits depend on neither ranks nor hosts: no bag is split between ranks, unless it is pooled
    at the sample. MOST_RANKS parts; the last batch has fewer samples than that."""
    always = {"batch_size": 130, "numerics.parts": MOST_RANKS}
    one_id = {"data.synthetic.columns.2.max_length": 1}
    jobs = [Job("as planned", {}),
            Job("check device", {"train.device": "check"}),
            Job("pooled at the sample", all_tables("sharding", "row_wise") |
                all_tables("pooled_at", "sample") | {"codecs.ids": "packed"}),
            Job("hot rows", all_tables("hot_rows", 10) | one_id, hot_rows=True),
            Job("sequences", SEQUENCE | {"tables.2.sharding": "row_wise"}),
            Job("codecs", {"codecs.forward": "int8", "codecs.backward": "bf16",
                           "tables.2.sharding": "column_wise"}),
            Job("bf16 rows", all_tables("dtype", "bf16") | {"tables.1.sharding": "data_parallel"})]
    jobs += [Job(kind, all_tables("sharding", kind) | one_id) for kind in SHARDINGS]
    jobs += [Job(f"copies, {kind}", all_tables("sharding", "data_parallel") |
                 all_tables("optimizer", {"type": kind, "max_norm": 0.2})) for kind in OPTIMIZERS]
    return [dataclasses.replace(job, values=always | job.values) for job in jobs]


def many_rank_jobs(ranks, seed, layouts=tuple(LAYOUTS)):
    """Pairs of a job on one rank and the same on many, of every kind and number of ranks: layout, form and
    schedule are drawn."""
    draw = random.Random(seed)
    pairs = []
    for job in jobs_of_any_ranks():
        for count in ranks:
            layout, form = draw.choice(layouts), draw.choice(FORMS)
            schedule = draw.choice(SCHEDULES)
            name = (f"{job.name}, {count} ranks, {layout}, {form}, "
                    f"{schedule['pipeline.schedule']}")
            many = dataclasses.replace(job, name=name, ranks=count, hosts=LAYOUTS[layout](count),
                                       values=job.values | schedule | {"collectives": form})
            pairs.append((job, many))
    return pairs


def open_jobs():
    """Jobs whose bits depend on the processor's instruction set."""
    return [Job(f"target auto, {compute}", {"numerics.target": "auto", "model.compute": compute} |
                SEQUENCE, ranks=2) for compute in ("fp32", "bf16")]
