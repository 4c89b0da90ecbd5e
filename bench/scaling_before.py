"""Two builds over MPI: what a step of an earlier one costs a rank, and one of this.

What they send is counted outside the programs (bench/mpi_counter), so that builds which count nothing can be compared.
What a step takes is a long job less a short one, over the steps between them: start and end fall out. Ranks are
processes of one machine that pass for those of hosts of 8. A rank has 16 samples, each with an id of every table.
Plans and manifests of checkpoints are those that both builds write in a job of ranks as threads, which is timed whole.
"""
import argparse
import json
import os
import pathlib
import subprocess
import tempfile
import time

import yaml
from processor import processor

HOST = 8  # ranks
SAMPLES = 16  # of a rank
SHORT = 3  # steps
LONG = {"26 tables": 63, "856 tables": 23}
LEFT_OUT = "65536,262144,1048576,4194304"  # bytes: at its start a job measures links by messages of these lengths,
#                                            as many as time allows (weft/train/link_report.cc)
SETS = {"26 tables": 26, "856 tables": 856}
KINDS = {  # of jobs: schedule, and form of the exchanges; auto is what a job without a cluster file gets
    "26 tables": (("sync", "auto"), ("nested", "auto"), ("sync", "hierarchical")),
    "856 tables": (("sync", "auto"), ("nested", "auto"), ("sync", "hierarchical")),
}
ROWS = 4096
COLUMNS = 16


def job(tables, ranks, schedule, form):
    """Returns the configuration in words that both builds know: tables cut by rows, and a small dense model."""
    names = f"C{{1..{tables}}}"
    return {
        "version": 1, "seed": 1, "batch_size": SAMPLES * ranks,
        "data": {"format": "synthetic", "synthetic": {
            "samples": SAMPLES * ranks * max(LONG.values()), "eval_samples": 0, "dense_columns": 4,
            "columns": [{"name": names, "cardinality": ROWS, "zipf": 0}]}},
        "dense_features": [{"name": "d{1..4}", "transform": "log"}],
        "sparse_features": [{"name": names, "mapping": "identity"}],
        "tables": [{"name": names, "num_embeddings": ROWS, "embedding_dim": COLUMNS, "sharding": "row_wise"}],
        "sparse_optimizer": {"type": "row_wise_adagrad", "learning_rate": 0.01},
        "model": {"type": "deepfm", "bottom_mlp": [COLUMNS], "top_mlp": [8]},
        "dense_optimizer": {"type": "sgd", "learning_rate": 0.01},
        "numerics": {"parts": 2 * ranks},
        "collectives": form,
        "pipeline": {"schedule": schedule, "micro_batches": [1, 1]},
    }


def checked(command):
    """Runs it; where it fails, what it wrote is the message."""
    done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"scaling_before.py: {' '.join(map(str, command))}: exit code {done.returncode}\n"
                         f"{done.stdout[-2000:]}{done.stderr[-2000:]}")


def run(weft, counter, config, ranks, per_host, steps, folder):
    """Trains, and returns what every rank counted."""
    folder.mkdir()
    (folder / "job.yaml").write_text(yaml.safe_dump(config))
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    environment = {"LD_PRELOAD": counter, "MPI_COUNTER_OUT": folder / "counts", "MPI_COUNTER_PER_HOST": per_host,
                   "MPI_COUNTER_LEFT_OUT": LEFT_OUT, "OMP_NUM_THREADS": 1}
    command = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-np", ranks,
               *(word for name, value in environment.items() for word in ("-x", f"{name}={value}")),
               weft, "train", folder / "job.yaml", "--set", f"train.steps={steps}", "--threads", 1,
               "--out", folder / "out"]
    checked(command)
    return [json.loads((folder / f"counts.{rank}").read_text()) for rank in range(ranks)]


def files(weft, config, ranks):
    """Returns the bytes of the plan and of the manifest of a checkpoint, and the seconds of the whole job."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        (folder / "job.yaml").write_text(yaml.safe_dump(config))
        start = time.monotonic()
        checked([weft, "train", folder / "job.yaml", "--set", f"train.steps={SHORT}", "--ranks", ranks, "--threads", 1,
                 "--out", folder / "out", "--checkpoint", folder / "saved"])
        seconds = time.monotonic() - start
        manifests = list((folder / "saved").rglob("manifest.json"))
        if len(manifests) != 1:
            raise SystemExit(f"scaling_before.py: {weft} left {len(manifests)} manifests in its folder, not one")
        return {"plan": (folder / "out/plan.yaml").stat().st_size, "manifest": manifests[0].stat().st_size,
                "seconds": seconds}


def measure(weft, counter, config, ranks, per_host, long_steps):
    """Returns messages and bytes of a step, each of the rank with most; the milliseconds of a processor that a step
    takes and the seconds of start and end, both the average of the ranks; the largest resident set of the long job."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        short, long = (run(weft, counter, config, ranks, per_host, steps, folder / str(steps))
                       for steps in (SHORT, long_steps))
    if any(one["messages"] == 0 for one in short):
        raise SystemExit(f"scaling_before.py: {counter} saw no message of {weft}; was it built for another MPI?")
    of_step = {key: [(b[key] - a[key]) / (long_steps - SHORT) for a, b in zip(short, long)] for key in short[0]}
    step_s = sum(of_step["seconds"]) / ranks
    return {"messages": max(of_step["messages"]), "bytes": max(of_step["bytes"]), "step_ms": 1e3 * step_s,
            "ends_s": sum(one["seconds"] for one in short) / ranks - SHORT * step_s,
            "resident": max(one["resident"] for one in long)}


def compare(before, now, counter, tables, ranks, per_host):
    """Returns the figures of both builds, job by job. Which comes first changes with the ranks and with the kind."""
    builds = {"before": before, "now": now}
    results = []
    for k, (name, (schedule, form)) in enumerate((name, kind) for name in tables for kind in KINDS[name]):
        for w, world in enumerate(ranks):
            config = job(SETS[name], world, schedule, form)
            figures = {}
            for build in list(builds)[:: 1 if (k + w) % 2 == 0 else -1]:
                figures[build] = measure(builds[build], counter, config, world, per_host, LONG[name])
                print(f"{name} {schedule:6} {form:12} {world:2} ranks, {build:6}: {figures[build]}", flush=True)
            results.append({"tables": name, "schedule": schedule, "form": form, "ranks": world, **figures})
    written = []
    for name in tables:
        for w, world in enumerate(ranks):
            config = job(SETS[name], world, "sync", "auto")
            order = list(builds)[:: 1 if w % 2 == 0 else -1]
            written.append({"tables": name, "ranks": world,
                            **{build: files(builds[build], config, world) for build in order}})
    return {"version": 1, "program": "scaling_before", "cpu": processor()[0], "jobs": results, "files": written}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path, help="the program of an earlier build")
    parser.add_argument("now", type=pathlib.Path)
    parser.add_argument("--counter", type=pathlib.Path, required=True, help="mpi_counter.so")
    parser.add_argument("--tables", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[8, 16, 32, 64])
    parser.add_argument("--per-host", type=int, default=HOST, help="ranks that pass for those of a host")
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if min(options.ranks) < 2 or options.per_host < 1:
        parser.error("--ranks must be at least 2, where something is sent, and --per-host at least 1")
    results = compare(options.before, options.now, options.counter, options.tables, options.ranks, options.per_host)
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
