"""Two builds over MPI: what a step of an earlier one costs a rank, and one of this.

Counted outside the programs (bench/mpi_counter), so that builds which count nothing can be compared. What a step
takes is a long job less a short one, over the steps between them: start and end fall out. Ranks are processes of one
machine that pass for those of hosts of 8. A rank has 16 samples, of which each has an id of every table.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import tempfile

import yaml
from processor import processor

HOST = 8
SAMPLES = 16  # of a rank
SHORT, LONG = 3, 63  # steps
SETS = {"26 tables": 26, "856 tables": 856}
KINDS = {  # of jobs: schedule, and form of the exchanges; auto is what a job without a cluster file gets
    "26 tables": (("sync", "auto"), ("nested", "auto"), ("sync", "hierarchical")),
    "856 tables": (("sync", "auto"), ("sync", "hierarchical")),
}
ROWS = 4096
COLUMNS = 16


def job(tables, ranks, schedule, form):
    """The configuration, in words that both builds know: every table cut by rows over all ranks, a small dense model."""
    names = f"C{{1..{tables}}}"
    return {
        "version": 1, "seed": 1, "batch_size": SAMPLES * ranks,
        "data": {"format": "synthetic", "synthetic": {
            "samples": SAMPLES * ranks * LONG, "eval_samples": 0, "dense_columns": 4,
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


def run(weft, counter, config, ranks, steps, folder):
    """Trains, and returns what every rank counted."""
    folder.mkdir()
    (folder / "job.yaml").write_text(yaml.safe_dump(config))
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    command = ["mpirun", *root, "--oversubscribe", "--bind-to", "none", "-np", ranks, "-x", f"LD_PRELOAD={counter}",
               "-x", f"MPI_COUNTER_OUT={folder / 'counts'}", "-x", f"MPI_COUNTER_PER_HOST={HOST}", "-x",
               "OMP_NUM_THREADS=1", weft, "train", folder / "job.yaml", "--set", f"train.steps={steps}", "--threads", 1,
               "--out", folder / "out"]
    done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
    if done.returncode != 0:
        raise SystemExit(f"scaling_before.py: {weft} on {ranks} ranks: exit code {done.returncode}\n"
                         f"{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return [json.loads((folder / f"counts.{rank}").read_text()) for rank in range(ranks)]


def measure(weft, counter, config, ranks):
    """Of the rank with most: messages and bytes of a step. Of all on average: milliseconds of a processor a step, and
    seconds of start and end. The largest resident set."""
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        short, long = (run(weft, counter, config, ranks, steps, folder / str(steps)) for steps in (SHORT, LONG))
    if any(one["messages"] == 0 for one in short):
        raise SystemExit(f"scaling_before.py: {counter} saw no message of {weft}; was it built for another MPI?")
    of_step = {key: [(b[key] - a[key]) / (LONG - SHORT) for a, b in zip(short, long)] for key in short[0]}
    step_s = sum(of_step["seconds"]) / ranks
    return {"messages": max(of_step["messages"]), "bytes": max(of_step["bytes"]), "step_ms": 1e3 * step_s,
            "ends_s": sum(one["seconds"] for one in short) / ranks - SHORT * step_s,
            "resident": max(one["resident"] for one in long)}


def compare(before, now, counter, tables, ranks):
    """Returns the figures of both builds, job by job. Which build comes first changes from job to job."""
    builds = {"before": before, "now": now}
    results = []
    for name, (schedule, form) in ((name, kind) for name in tables for kind in KINDS[name]):
        for world in ranks:
            config = job(SETS[name], world, schedule, form)
            figures = {}
            for build in list(builds)[:: 1 if len(results) % 2 == 0 else -1]:
                figures[build] = measure(builds[build], counter, config, world)
                print(f"{name} {schedule:6} {form:12} {world:2} ranks, {build:6}: {figures[build]}", flush=True)
            results.append({"tables": name, "schedule": schedule, "form": form, "ranks": world, **figures})
    return {"version": 1, "program": "scaling_before", "cpu": processor()[0], "jobs": results}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("before", type=pathlib.Path, help="the program of an earlier build")
    parser.add_argument("now", type=pathlib.Path)
    parser.add_argument("--counter", type=pathlib.Path, required=True, help="mpi_counter.so")
    parser.add_argument("--tables", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--ranks", nargs="+", type=int, default=[8, 16, 32, 64])
    parser.add_argument("--out", type=pathlib.Path, required=True)
    options = parser.parse_args()
    if shutil.which("mpirun") is None:
        print("scaling_before.py: there is no mpirun, so nothing is compared")
        return
    results = compare(options.before, options.now, options.counter, options.tables, options.ranks)
    options.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    main()
