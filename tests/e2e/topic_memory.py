"""Memory: what the process was given is what the job says that it took."""

import os
import pathlib
import resource

from harness import BASE, Case, with_values

# Tables of 256 MiB and their state, beside which the program's own 20 MiB are little.
ROWS = 131072
LARGE = with_values(BASE, {
    "batch_size": 4096,
    "train.steps": 6,
    "data.synthetic.samples": 30000,
    "tables.0.num_embeddings": ROWS,
    "tables.0.embedding_dim": 256,
    "tables.1.num_embeddings": ROWS,
    "tables.1.embedding_dim": 256,
    "tables.2.embedding_dim": 256,
    "model.bottom_mlp": [64, 256],
})


class Memory(Case):
    def peak_of(self, config, *args):
        """The summary of a job, and the most its process ever had resident."""
        name = f"summary-{self.runs}.json"
        process = self.start([self.weft, "train", config, "--quiet", "--threads", 1,
                              "--summary", name, *args])
        process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
        self.assertEqual(process.returncode, 0, self.log_of(process))
        return self.summary(name), usage.ru_maxrss * 1024

    def test_peak_is_what_was_taken(self):
        for values, ranks, row_bytes in (
            ({}, 1, 4 * 256 + 4),
            ({"tables.0.sharding": "row_wise", "tables.1.sharding": "column_wise"}, 2, None),
            ({"sparse_optimizer": {"type": "adagrad"}, "tables.0.dtype": "split_bf16"}, 1,
             8 * 256),
            ({"model.type": "dcnv2", "model.cross_layers": 2, "model.cross_rank": 16}, 2, None),
        ):
            config = self.write(LARGE, values=values)
            summary, resident = self.peak_of(config, "--ranks", ranks)
            memory = summary["memory"]
            if row_bytes is not None:
                rows = 2 * ROWS + BASE["tables"][2]["num_embeddings"]
                self.assertLess(abs(memory["tables_bytes"] - rows * row_bytes), 4096)
            self.assertLess(memory["tables_bytes"], memory["buffers_peak_bytes"])
            self.assertAlmostEqual(summary["peak_rss_bytes"], resident, delta=4 << 20)
            taken = memory["buffers_peak_bytes"] + memory["heap_bytes"]
            ratio = (resident - memory["program_bytes"]) / taken
            self.assertTrue(0.95 < ratio < 1.05, f"{values}: {ratio}, {resident}, {memory}")


# Four tables that each fit in the limit below and together do not: 4 x 96 MiB and their state.
LIMIT = 300 << 20
TOGETHER = with_values(BASE, {
    **{f"tables.{i}.num_embeddings": 98304 for i in range(3)},
    **{f"tables.{i}.embedding_dim": 256 for i in range(3)},
    "model.bottom_mlp": [64, 256],
    "train.steps": 2,
})
TOGETHER["tables"].append({**TOGETHER["tables"][0], "name": "unread"})


class CgroupOfVersion1:
    def __init__(self, name):
        self.folder = pathlib.Path("/sys/fs/cgroup/memory") / name
        self.folder.mkdir()
        (self.folder / "memory.limit_in_bytes").write_text(str(LIMIT))


class CgroupOfVersion2:
    """Below the root, where a cgroup may have processes beside it."""

    def __init__(self, name):
        root = pathlib.Path("/sys/fs/cgroup")
        if "memory" not in (root / "cgroup.subtree_control").read_text().split():
            raise OSError("the root does not hand on the memory controller")
        self.folder = root / name
        self.folder.mkdir()
        (self.folder / "memory.max").write_text(str(LIMIT))


class MemoryLimit(Case):
    """What does not fit ends the job before its first step, and names the tables."""

    SAYS = ["tables and optimizer state of rank 0 take", "the largest tables there: ", "unread "]

    def cgroup(self):
        for kind in (CgroupOfVersion1, CgroupOfVersion2):
            try:
                made = kind(f"weft-test-{os.getpid()}")
            except OSError:
                continue
            self.addCleanup(made.folder.rmdir)
            return made.folder
        self.skipTest("no memory cgroup can be made here")

    def test_cgroup(self):
        procs = self.cgroup() / "cgroup.procs"

        def enter():
            procs.write_text(str(os.getpid()))

        config = self.write(TOGETHER)
        for command in ("train", "eval"):
            result = self.run_weft(command, config, "--threads", 1, code=1, preexec_fn=enter)
            for part in [*self.SAYS, f"cgroup /{procs.parent.name} has "]:
                self.assertIn(part, result.err)
        half = [f"--set=tables.{i}.num_embeddings=24576" for i in range(4)]
        self.run_weft("train", config, *half, "--threads", 1, preexec_fn=enter)

    def test_address_space(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (LIMIT, LIMIT))

        config = self.write(TOGETHER)
        result = self.run_weft("train", config, "--threads", 1, code=1, preexec_fn=limit)
        for part in [*self.SAYS, "the address space of a process (ulimit -v) has "]:
            self.assertIn(part, result.err)
        # Who insists meets the system's own limit.
        result = self.run_weft("train", config, "--threads", 1, "--ignore-memory-limits", code=1,
                               preexec_fn=limit)
        self.assertIn("weft: warning: tables and optimizer state of rank 0 take", result.err)
        self.assertIn("cannot allocate", result.err)
