#!/usr/bin/env python3
"""Weft, TorchRec and plain PyTorch on the same logs, in turns.

    bench/peers/run_peers.py --weft build/release/weft --out build/bench/peers.json [--rounds 3] [--quick]
                             [--only WORKLOAD] [--compute fp32|bf16]

Makes the environment of the peers where it is not there, says so and exits with 0 where it cannot be had. Weft generates
each log once; all systems read that file. Behind each turn of Weft's, bin/step_bench beside it measures the limits of such a
step, where it is built. docs/performance.md ("Peers") says what is equal and what is not.
"""
import argparse
import datetime
import json
import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import yaml

import environment
import peer_turns

HERE = pathlib.Path(__file__).resolve().parent
BENCH = HERE.parent
sys.path.insert(0, str(BENCH))
from processor import has_bf16, processor  # noqa: E402

WORKLOADS = {
    "dlrm_kaggle, D = 16": (BENCH / "dlrm_kaggle.yaml", ["data.synthetic.eval_samples=65536"] +
                            [f"sparse_features.C{n}.mapping=identity" for n in range(1, 27)]),
    "26 x 1M rows, D = 64": (HERE / "lookup.yaml", []),
    "26 x 1M rows, D = 16": (HERE / "lookup.yaml", [f"tables.C{n}.embedding_dim=16" for n in range(1, 27)] +
                             ["model.bottom_mlp=[16]"]),
}
WARM_STEPS = 16
QUICK = ["batch_size=256", "data.synthetic.samples=2048", "data.synthetic.eval_samples=4096"]
QUICK_WARM_STEPS = 2
QUICK_ROWS = 1000
PRIORITY = -10  # of all systems alike, where it may be raised: what else runs on the machine counts less


def raise_priority():
    try:
        os.setpriority(os.PRIO_PROCESS, 0, PRIORITY)
    except OSError:
        pass  # as any other user


class Workload:
    """A configuration with its logs, and the same as a job of the peers."""

    def __init__(self, name, weft, quick, folder):
        config, settings = WORKLOADS[name]
        self.name, self.weft, self.config = name, weft, config
        self.step_bench, self.data = weft.parent / "bin" / "step_bench", folder.parent / "data"
        self.step_options = ["--turn-seconds", 0.1, "--probe-gib", 0.125] if quick else []
        self.settings = settings + (self.small(config) if quick else [])
        self.warm = QUICK_WARM_STEPS if quick else WARM_STEPS
        self.resolved = yaml.safe_load(self.run("config", []))
        self.logs = {split: folder / f"{''.join(c for c in name if c.isalnum())}.{split}.weft" for split in ("train", "eval")}
        for split, path in self.logs.items():
            if not path.exists():
                self.run("data", ["--split", split, "--quiet", "--out", path], "generate")

    def small(self, config):
        rows = [t["num_embeddings"] for t in yaml.safe_load(self.weft_config(config))["tables"]]
        return QUICK + [f"{path}={min(r, QUICK_ROWS)}" for n, r in enumerate(rows)
                        for path in (f"tables.C{n + 1}.num_embeddings", f"data.synthetic.columns.C{n + 1}.cardinality")]

    def weft_config(self, config):
        return subprocess.run([self.weft, "config", config], check=True, capture_output=True, text=True).stdout

    def run(self, command, options, *more):
        words = [self.weft, command, *more, self.config]
        for setting in self.settings:
            words += ["--set", setting]
        done = subprocess.run([*words, *options], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"run_peers.py: weft {command}: {done.stderr.strip()}")
        return done.stdout

    def weft_command(self, ranks, threads, compute, seed, out):
        settings = [*self.settings, f"model.compute={compute}", f"seed={seed}", "data.format=weft",
                    f"data.path={self.logs['train']}", f"data.eval_path={self.logs['eval']}", "data.shuffle.enabled=false",
                    f"train.log_every={self.warm}"]
        return [self.weft, "train", self.config, "--ranks", ranks, "--threads", threads, "--quiet", "--out", out,
                *(word for setting in settings for word in ("--set", setting))]

    def job(self, threads, compute, seed):
        c = self.resolved
        of = c["sparse_optimizer"]
        sparse = {"type": of["type"], **{key: float(of[key]) for key in ("learning_rate", "eps")}}
        return {"train": str(self.logs["train"]), "eval": str(self.logs["eval"]), "batch": c["batch_size"], "warm": self.warm,
                "rows": [t["num_embeddings"] for t in c["tables"]], "dim": c["tables"][0]["embedding_dim"],
                "dense_columns": len(c["dense_features"]), "bottom": c["model"]["bottom_mlp"], "top": c["model"]["top_mlp"],
                "sparse": sparse, "dense_learning_rate": float(c["dense_optimizer"]["learning_rate"]), "threads": threads,
                "compute": compute, "seed": seed}


def run_processes(commands, log):
    """All at once; returns the sum of their peaks of resident memory. `commands`: words and environment."""
    with open(log, "w") as file:
        running = [subprocess.Popen([str(w) for w in words], env={**os.environ, **more}, stdout=file, stderr=file)
                   for words, more in commands]
        peak, failed = 0, False
        for process in running:
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            peak += usage.ru_maxrss * 1024
            if process.returncode != 0 and not failed:
                failed = True
                for other in running:
                    if other.returncode is None:
                        other.terminate()
    if failed:
        raise SystemExit(f"run_peers.py: {running[0].args[:2]} failed:\n{pathlib.Path(log).read_text()[-3000:]}")
    return peak


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train_peer(workload, system, ranks, threads, compute, seed, folder):
    job, result = folder / "job.json", folder / "result.json"
    job.write_text(json.dumps(workload.job(threads, compute, seed)))
    script = HERE / f"train_{system}.py"
    port = str(free_port())
    # Huge pages for large blocks: PyTorch's allocator asks for them only where it is told.
    common = {"OMP_NUM_THREADS": str(threads), "THP_MEM_ALLOC_ENABLE": "1", "WORLD_SIZE": str(ranks),
              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "PYTHONHASHSEED": "0"}
    commands = [([environment.python(), script, job, result], {**common, "RANK": str(r)}) for r in range(ranks)]
    peak = run_processes(commands, folder / "log")
    reports = [json.loads(path.read_text()) for path in sorted(folder.glob("result.json*"))]
    return {**peer_turns.peer_figures(reports), "peak_bytes": peak}


def train_weft(workload, ranks, threads, compute, seed, folder):
    out = folder / "out"
    peak = run_processes([(workload.weft_command(ranks, threads, compute, seed, out), {})], folder / "log")
    windows = [json.loads(line) for line in (out / "metrics.jsonl").read_text().splitlines()]
    summary = json.loads((out / "summary.json").read_text())
    return {**peer_turns.weft_figures(summary, windows), "peak_bytes": peak, "weft": summary["weft"]}


def limit_of_step(workload, ranks, threads, compute, folder):
    """Milliseconds: the sum of the limits of a step's parts, as step_bench measures them here and now."""
    result = folder / "limit.json"
    words = [workload.step_bench, workload.config, "--ranks", ranks, "--threads", threads, "--rounds", 1,
             "--variant", f"{compute}:model.compute={compute}", "--data", workload.data, "--out", result, *workload.step_options]
    for setting in workload.settings:
        words += ["--set", setting]
    run_processes([(words, {})], folder / "log")
    return peer_turns.sum_of_limits(json.loads(result.read_text()))


def turn(workload, system, ranks, threads, compute, round_number):
    seed = round_number + 1
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        if system == "weft":
            figures = train_weft(workload, ranks, threads, compute, seed, folder)
            if workload.step_bench.exists():
                figures["limit_ms"] = limit_of_step(workload, ranks, threads, compute, folder)
        else:
            figures = train_peer(workload, system, ranks, threads, compute, seed, folder)
    print(f"{workload.name:22} {compute} {system:9} {ranks} x {threads}: {figures['samples_per_s']:9,.0f} samples/s, "
          f"{figures['peak_bytes'] / 1e9:6.2f} GB, NE {figures['ne']:.4f}, {time.monotonic() - begin:.0f} s", flush=True)
    return {"workload": workload.name, "compute": compute, "system": system, "ranks": ranks, "threads": threads,
            "round": round_number, "seconds": time.monotonic() - begin, **figures}


def write(path, turns, rounds, versions):
    name, cores, _ = processor()
    weft = next(t["weft"] for t in turns if t["system"] == "weft")
    path.write_text(json.dumps(
        {"version": 1, "program": "peers", "processor": name, "cores": cores, "bf16": has_bf16(),
         "date": datetime.date.today().isoformat(), "rounds": rounds,
         "versions": {**(versions or {}), "weft": f"{weft} {os.environ.get('WEFT_COMMIT', '')}".strip()}, "turns": turns},
        indent=1) + "\n")


def arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--weft", type=pathlib.Path, default=BENCH.parent / "build/release/weft")
    parser.add_argument("--out", type=pathlib.Path, default=BENCH.parent / "build/bench/peers.json")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="tiny; only Weft where the environment is not there yet")
    parser.add_argument("--only", action="append", help="a workload whose name begins so; may be repeated")
    parser.add_argument("--compute", action="append", choices=("fp32", "bf16"),
                        help="default: fp32, and bf16 where the processor has it")
    options = parser.parse_args()
    for prefix in options.only or []:
        if not any(workload.startswith(prefix) for workload in WORKLOADS):
            parser.error(f"--only {prefix}: no workload begins so; there are {', '.join(repr(w) for w in WORKLOADS)}")
    return options


def main():
    options = arguments()
    found = environment.versions()
    if found is None and not options.quick:
        print(f"peers: making {environment.FOLDER}", flush=True)
        reason = environment.make()
        found = environment.versions()
        if found is None:
            print(f"peers: skipped, torch, fbgemm-gpu-cpu and torchrec cannot be had here: {reason}")
            return
    if found is None:
        print("peers: only Weft runs; 'scripts/bench peers' makes the environment of the others")
    systems = peer_turns.SYSTEMS if found else {"weft": peer_turns.SYSTEMS["weft"]}
    computes = options.compute or ["fp32"] + (["bf16"] if has_bf16() else [])
    names = [w for w in WORKLOADS if not options.only or w.startswith(tuple(options.only))]
    rounds = 1 if options.quick else options.rounds
    turns = []
    raise_priority()
    options.out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=options.out.parent) as folder:
        workloads = [Workload(w, options.weft.resolve(), options.quick, pathlib.Path(folder)) for w in names]
        for round_number in range(rounds):
            for workload in workloads:
                for compute in computes:
                    turns += [turn(workload, *who, compute, round_number)
                              for who in peer_turns.turns_of(round_number, systems)]
            write(options.out, turns, round_number + 1, found)  # what is whole stays, whatever ends the next round


if __name__ == "__main__":
    sys.exit(main())
