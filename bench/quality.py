#!/usr/bin/env python3
"""What a setting does to the quality of a model: normalised entropy over several seeds.

    bench/quality.py [bench/quality.yaml] [--weft build/release/weft] [--out FILE] [--only NAME]

Runs what the file lists: every variant with every seed on every data set, a data set's own variants
before the common ones. Data sets that are not there ($WEFT_DATA, else ../shared/data) are left out, and
that is said. The results go to build/bench/, under the file's name. Takes some ten seconds per run.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

import yaml

SOURCE = pathlib.Path(__file__).resolve().parents[1]


def data_folder():
    return pathlib.Path(os.environ.get("WEFT_DATA", SOURCE.parent / "shared" / "data"))


def options_of(dataset):
    """Options of a data set's job, or None where its data is not there."""
    options = [str(word) for word in dataset.get("options", [])]
    if "data" not in dataset:
        return options
    folder = data_folder() / dataset["data"]
    return [*options, "--set", f"data.path={folder}"] if folder.is_dir() else None


def train(weft, ranks, config, options):
    """NE and AUC on the evaluation set."""
    with tempfile.TemporaryDirectory() as folder:
        summary = pathlib.Path(folder) / "summary.json"
        done = subprocess.run(
            [weft, "train", SOURCE / config, "--ranks", str(ranks), "--threads", "1", "--quiet",
             "--summary", summary, *options], capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"quality.py: {config} {' '.join(options)}: {done.stderr.strip()}")
        found = json.loads(summary.read_text())["eval"]
    return {"ne": found["ne"], "auc": found["auc"]}


def measure(settings, weft, only):
    results = []
    for dataset in settings["datasets"]:
        options = options_of(dataset)
        if options is None:
            print(f"{dataset['name']}: left out, there is no {data_folder() / dataset['data']}")
            continue
        base = {}
        variants = settings["variants"]
        for number, variant in enumerate([variants[0], *dataset.get("variants", []), *variants[1:]]):
            if number > 0 and only and variant["name"] not in only:
                continue
            words = [str(word) for word in variant.get("options", [])]
            runs = {seed: train(weft, settings["ranks"], dataset["config"],
                                [*options, *words, "--set", f"seed={seed}"])
                    for seed in settings["seeds"]}
            base = base or runs
            results.append(compared(dataset["name"], variant["name"], runs, base))
            print(line(results[-1]), flush=True)
    return results


def compared(dataset, variant, runs, base):
    changes = [runs[seed]["ne"] - base[seed]["ne"] for seed in runs]
    return {"dataset": dataset, "variant": variant, "seeds": list(runs),
            "ne": [one["ne"] for one in runs.values()],
            "auc": [one["auc"] for one in runs.values()],
            "ne_change": changes, "ne_change_mean": statistics.fmean(changes),
            "ne_seed_spread": max(one["ne"] for one in base.values()) -
            min(one["ne"] for one in base.values())}


def line(result):
    return (f"{result['dataset']:10} {result['variant']:32} NE "
            f"{statistics.fmean(result['ne']):.5f}, change {result['ne_change_mean']:+.5f} "
            f"({min(result['ne_change']):+.5f} to {max(result['ne_change']):+.5f}); the first over "
            f"seeds {result['ne_seed_spread']:.5f}")


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("settings", nargs="?", type=pathlib.Path, default=SOURCE / "bench" / "quality.yaml")
    arguments.add_argument("--weft", default=SOURCE / "build" / "release" / "weft")
    arguments.add_argument("--out", type=pathlib.Path, help="default: build/bench/NAME.json")
    arguments.add_argument("--only", action="append", help="this variant; may be repeated")
    found = arguments.parse_args()
    settings = yaml.safe_load(found.settings.read_text())
    name = found.settings.stem
    out = found.out or SOURCE / "build" / "bench" / f"{name}.json"
    results = measure(settings, pathlib.Path(found.weft).resolve(), found.only)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps({"version": 1, "program": name, "settings": settings, "quality": results},
                              indent=1) + "\n")


if __name__ == "__main__":
    sys.exit(main())
