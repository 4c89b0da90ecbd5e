#!/usr/bin/env python3
"""What two ranks of one thread lose against one rank of two threads: whole steps, in turns.

    bench/two_ranks.py [--built build/release] [--rounds 3] [--only dlrm_kaggle/16384/fp32] [--out FILE]

A turn is a process of step_bench, which trains one configuration in one shape and measures the parts of a step. In a
round every shape has a turn, every second round in the opposite order, and a ratio is taken within a round. The result
goes to build/bench/two_ranks.json, from which bench/tables.py writes a table of docs/performance.md. It takes twenty
minutes, and DCNv2 12 GB.
"""
import argparse
import json
import os
import pathlib
import shlex
import shutil
import statistics
import subprocess
import sys
import tempfile

from processor import has_bf16, processor

SOURCE = pathlib.Path(__file__).resolve().parents[1]
CASES = ("dlrm_kaggle/2048/fp32", "dlrm_kaggle/2048/bf16", "dlrm_kaggle/16384/fp32", "dlrm_kaggle/16384/bf16",
         "dcnv2_mlperf/2048/fp32")
SHAPES = {"1 x 2": ["--threads", "2"], "local": ["--ranks", "2", "--threads", "1"], "mpi": ["--threads", "1"]}
# Limits are not what is asked for here.
OPTIONS = "--rounds 3 --turn-seconds 1.5 --probe-seconds 0.005 --probe-gib 0.05"
MPIRUN = ["mpirun", "--oversubscribe", "--bind-to", "none", "-np", "2"]


def shapes():
    """Those that can run here."""
    return [shape for shape in SHAPES if shape != "mpi" or shutil.which("mpirun")]


def cases(only):
    """Those that are asked for; bf16 only where the processor multiplies it."""
    for case in only or CASES:
        if case.endswith("/bf16") and not has_bf16():
            print(f"{case}: left out, this processor has no products of bf16")
        else:
            yield case


def measure(built, case, shape, options):
    """Milliseconds of a step and of its parts on rank 0."""
    model, batch, compute = case.split("/")
    root = ["--allow-run-as-root"] if os.geteuid() == 0 else []
    launcher = [*MPIRUN, *root] if shape == "mpi" else []
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder) / "step.json"
        command = [*launcher, built / "bin" / "step_bench", SOURCE / "bench" / f"{model}.yaml", *options,
                   *SHAPES[shape], "--set", f"batch_size={batch}", "--variant", f"{compute}:model.compute={compute}",
                   "--out", out]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"two_ranks.py: {case} as {shape}: {done.stderr.strip() or done.stdout.strip()}")
        found = json.loads(out.read_text())
    return {r["name"].removeprefix("part."): r["median"] for r in found["results"]
            if r["name"] == "step_ms" or r["name"].startswith("part.")}


def summary(case, turns):
    """Medians of each shape's turns, and the ratios of its steps to those of one rank in the same round."""
    ones = turns["1 x 2"]
    found = []
    for shape, own in turns.items():
        ratios = [turn["step_ms"] / one["step_ms"] for turn, one in zip(own, ones)]
        parts = {name: statistics.median(turn[name] for turn in own) for name in own[0]}
        found.append({"shape": shape, "step_ms": parts.pop("step_ms"), "ratios": ratios, "parts": parts})
    return {"case": case, "shapes": found}


def run(built, rounds, only, options):
    results = []
    for case in cases(only):
        turns = {shape: [] for shape in shapes()}
        for number in range(rounds):
            for shape in list(turns)[::-1 if number % 2 else 1]:
                turn = measure(built, case, shape, options)
                turns[shape].append(turn)
                print(f"{case:24} round {number + 1}  {shape:6} {turn['step_ms']:8.2f} ms", flush=True)
        results.append(summary(case, turns))
    return {"version": 1, "program": "two_ranks", "cpu": processor()[0], "rounds": rounds, "cases": results}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--built", type=pathlib.Path, default=SOURCE / "build" / "release")
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", action="append", help="MODEL/BATCH/COMPUTE; may be repeated")
    arguments.add_argument("--out", type=pathlib.Path, default=SOURCE / "build" / "bench" / "two_ranks.json")
    arguments.add_argument("--options", default=OPTIONS, help="of step_bench; default: %(default)s")
    found = arguments.parse_args()
    results = run(found.built.resolve(), found.rounds, found.only, shlex.split(found.options))
    found.out.parent.mkdir(parents=True, exist_ok=True)
    found.out.write_text(json.dumps(results, indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
