"""Jobs whose tables share one memory for caches, for scripts/tiers caches: what misses by how it is divided.

Rows that miss are counted, not timed: a job of so many steps is run, and one of some more, and the second has counted
what the first has, and the steps behind it. So the figures are the same on every machine.
"""
import json
import pathlib
import shutil
import subprocess

SOURCE = pathlib.Path(__file__).resolve().parents[1]
MIB = 1 << 20
JOB = SOURCE / "bench/tiers_caches.yaml"
CLUSTER = SOURCE / "clusters/cpu_25gbe.yaml"  # of which nothing counts here: one rank, and rows, not seconds
COUNTED = {"asked": "rows_asked", "hits": "rows_hit", "read": "rows_read", "made": "rows_made"}


class SharedCaches:
    """Runs of the job, each in a fresh folder."""

    def __init__(self, weft, folder, settings):
        self.weft, self.folder, self.settings = pathlib.Path(weft).resolve(), pathlib.Path(folder).resolve(), settings
        self.folder.mkdir(parents=True, exist_ok=True)

    def run(self, command):
        done = subprocess.run([str(word) for word in command], check=False, capture_output=True, text=True)
        if done.returncode != 0:
            raise SystemExit(f"scripts/tiers: {' '.join(map(str, command))}: exit code {done.returncode}\n"
                             f"{done.stderr.strip()}")
        return done.stdout

    def keys(self, case, steps):
        values = {"tiers.directories": f"[{self.folder / 'rows'}]", "tiers.cache_bytes": case["cache_mib"] * MIB,
                  "tiers.division": case["division"], "train.steps": steps}
        options = [word for key, value in values.items() for word in ("--set", f"{key}={value}")]
        options += [word for name in self.settings.tables for word in ("--set", f"tables.{name}.memory.policy={case['policy']}")]
        return options

    def count(self, case, steps):
        """What a job of so many steps has counted, by table; and its state."""
        out = self.folder / "out"
        shutil.rmtree(out, ignore_errors=True)
        self.run([self.weft, "train", JOB, "--quiet", "--threads", "1", "--out", out, *self.keys(case, steps)])
        summary = json.loads((out / "summary.json").read_text())
        return {one["table"]: {name: one[key] for name, key in COUNTED.items()}
                for one in summary["tiers"]["tables"]}, summary["state_hash"]

    def predict(self, case):
        """What the planner says of the last step: caches and misses by table."""
        report = json.loads(self.run([self.weft, "plan", JOB, "--cluster", CLUSTER, "--ranks", "1", "--format", "json",
                                      *self.keys(case, self.settings.warm_steps + self.settings.steps)]))
        return {one["table"]: {"cache_bytes": one["bytes"], "predicted": one["misses"]}
                for one in report["reads"]["tables"]}

    def measure(self, case):
        """Of the steps behind the first ones, per step and table."""
        before, _ = self.count(case, self.settings.warm_steps)
        behind, state = self.count(case, self.settings.warm_steps + self.settings.steps)
        tables = self.predict(case)
        for name, table in tables.items():
            table.update({key: (behind[name][key] - before[name][key]) / self.settings.steps for key in COUNTED})
        return {**case, "tables": tables, "state_hash": state}
