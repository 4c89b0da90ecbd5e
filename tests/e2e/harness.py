"""What the end-to-end tests share: running the program, and small inputs.

A configuration is a plain dict written as JSON, which is YAML.
"""

import copy
import json
import os
import pathlib
import random
import signal
import subprocess
import tempfile
import time
import unittest

SOURCE = pathlib.Path(__file__).resolve().parents[2]
LIMIT_S = 240  # no single run takes longer, sanitizers and a loaded machine included

BASE = {
    "version": 1,
    "seed": 3,
    "batch_size": 64,
    "data": {
        "format": "synthetic",
        "synthetic": {
            "samples": 1000,
            "eval_samples": 300,
            "dense_columns": 3,
            "visitors": 50,
            "columns": [
                {"name": "a", "cardinality": 300, "repeat": 0.3},
                {"name": "b", "cardinality": 50, "missing": 0.1},
                {"name": "c", "cardinality": 40, "max_length": 4},
            ],
        },
    },
    "dense_features": [{"name": "d{1..3}", "transform": "log"}],
    "sparse_features": [
        {"name": "a", "mapping": "identity"},
        {"name": "b", "mapping": "identity"},
        {"name": "c", "mapping": "identity", "pooling": "mean"},
    ],
    "tables": [
        {"name": "a", "num_embeddings": 300, "embedding_dim": 32},
        {"name": "b", "num_embeddings": 50, "embedding_dim": 32},
        {"name": "c", "num_embeddings": 40, "embedding_dim": 32},
    ],
    "model": {"type": "dlrm", "bottom_mlp": [16, 32], "top_mlp": [16]},
    "train": {"log_every": 4},
}


def criteo_line(rng, label=None):
    """One row of Criteo's log; the first category decides most of the label."""
    first = rng.randrange(5)
    if label is None:
        label = int(rng.random() < 0.1 + 0.2 * first)
    dense = [str(rng.randrange(-2, 100)) if rng.random() < 0.9 else "" for _ in range(13)]
    categories = [f"{first:08x}"]
    categories += [f"{rng.randrange(2**32):08x}" if rng.random() < 0.8 else "" for _ in range(25)]
    return "\t".join([str(label)] + dense + categories)


def criteo_text(lines, seed=1):
    rng = random.Random(seed)
    return "".join(criteo_line(rng) + "\n" for _ in range(lines))


def with_inverted_labels(text):
    """Of Criteo's log, as long as it was."""
    return "".join(str(1 - int(line[0])) + line[1:] for line in text.splitlines(keepends=True))


CRITEO = {
    "version": 1,
    "batch_size": 32,
    "data": {"format": "criteo", "path": "train.txt", "eval_path": "train.txt"},
    "dense_features": [{"name": "I{1..13}", "transform": "log"}],
    "sparse_features": [{"name": "C{1..26}"}],
    "tables": [{"name": "C{1..26}", "num_embeddings": 50, "embedding_dim": 4}],
    "model": {"type": "dlrm", "bottom_mlp": [8, 4], "top_mlp": [8]},
}


def write_movielens(folder, ratings=600, seed=1):
    """A folder of ratings.csv and movies.csv."""
    rng = random.Random(seed)
    folder.mkdir()
    genres = ["Action", "Comedy", "Drama", "War"]
    movies = ["movieId,title,genres"]
    for film in range(1, 31):
        movies.append(f'{film},"Film, The {film}",' + "|".join(rng.sample(genres, 1 + film % 3)))
    rows = ["userId,movieId,rating,timestamp"]
    for i in range(ratings):
        rating = rng.randrange(1, 11) / 2
        rows.append(f"{rng.randrange(1, 21)},{rng.randrange(1, 31)},{rating},{10**9 + 600 * i}")
    (folder / "movies.csv").write_text("\n".join(movies) + "\n")
    (folder / "ratings.csv").write_text("\n".join(rows) + "\n")


def with_values(config, values):
    """A copy of `config` with {"path.to.key": value} set; parts that are numbers index lists."""
    result = copy.deepcopy(config)
    for path, value in values.items():
        *parents, last = path.split(".")
        node = result
        for part in parents:
            node = node[int(part)] if isinstance(node, list) else node.setdefault(part, {})
        node[int(last) if isinstance(node, list) else last] = value
    return result


def is_running(pid):
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return True


class Run:
    """A program that has ended."""

    def __init__(self, command, code, out, err):
        self.command, self.code, self.out, self.err = command, code, out, err

    def __str__(self):
        return f"{' '.join(map(str, self.command))}\nexit code {self.code}\n{self.out}{self.err}"


class Case(unittest.TestCase):
    """A test with a folder of its own, which is the program's working directory."""

    weft = None
    mpirun = None

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="weft-e2e-")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.runs = 0

    def write(self, config=None, name="job.yaml", values=None):
        """Writes a configuration; returns its name."""
        text = json.dumps(with_values(config or BASE, values or {}), indent=1)
        (self.folder / name).write_text(text)
        return name

    def environment(self):
        # A test may itself run under a launcher; the program must not think that it does.
        prefixes = ("OMPI_", "PMI", "SLURM_", "WORLD_SIZE")
        return {k: v for k, v in os.environ.items() if not k.startswith(prefixes)}

    def start(self, command, **options):
        command = [str(part) for part in command]
        log = open(self.folder / f"log-{self.runs}", "w+")
        self.runs += 1
        self.addCleanup(log.close)
        process = subprocess.Popen(
            command,
            cwd=options.pop("cwd", self.folder),
            env=self.environment() | options.pop("environment", {}),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
            start_new_session=True,
            **options,
        )
        process.log = log
        self.addCleanup(self.end_session, process)
        return process

    def end_session(self, process):
        """Ends what a failed test has left; its process group has only that."""
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        process.stdout.close()

    def wait(self, process, limit=LIMIT_S):
        try:
            out, _ = process.communicate(timeout=limit)
        except subprocess.TimeoutExpired:
            self.fail(f"still running after {limit} s: {process.args}\n{self.log_of(process)}")
        return Run(process.args, process.returncode, out, self.log_of(process))

    def log_of(self, process):
        return pathlib.Path(process.log.name).read_text(errors="replace")

    def run_weft(self, *args, code=0, **options):
        result = self.wait(self.start([self.weft, *args], **options))
        self.assertEqual(result.code, code, str(result))
        return result

    def refused(self, code, *args, says=()):
        """Runs the program, which must end with `code` and one error that says all of `says`."""
        result = self.run_weft(*args, code=code)
        errors = [line for line in result.err.splitlines() if line.startswith("weft: error: ")]
        self.assertEqual(len(errors), 1, str(result))
        for part in [says] if isinstance(says, str) else says:
            self.assertIn(part, errors[0], str(result))
        return errors[0]

    def train(self, config, *args, ranks=1, command="train", code=0):
        """Runs a job; returns its summary."""
        name = f"summary-{self.runs}.json"
        self.run_weft(command, config, "--ranks", ranks, "--quiet", "--summary", name, *args,
                      code=code)
        return self.summary(name)

    def summary(self, name):
        return json.loads((self.folder / name).read_text())

    def assert_same_bits(self, one, other, message=None):
        for key in ("weights_hash", "state_hash"):
            self.assertEqual(one[key], other[key], message)

    def mpi_command(self, ranks, *args):
        return [self.mpirun, *MPI_FLAGS, "-n", ranks, self.weft, *args]

    def wait_for(self, condition, process, what, limit=LIMIT_S):
        """Waits until `condition()` while `process` runs."""
        end = time.monotonic() + limit
        while not condition():
            if process.poll() is not None or time.monotonic() > end:
                self.fail(f"{what} did not happen\n{self.log_of(process)}")
            time.sleep(0.02)


MPI_FLAGS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]


class MpiCase(Case):
    def setUp(self):
        if self.mpirun is None:
            self.skipTest("no mpirun given")
        super().setUp()


def real_data(name):
    """A folder of real data, or None."""
    root = os.environ.get("WEFT_DATA")
    folder = pathlib.Path(root) if root else SOURCE.parent / "shared" / "data"
    return folder / name if (folder / name).is_dir() else None
