"""Memory: what the process was given is what the job says that it took."""

import os

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
