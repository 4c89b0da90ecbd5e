"""What a job says of its links at its start."""

from harness import BASE, MpiCase

CLUSTER = """version: 1
name: dream
hosts:
  - {{count: 1, ranks: 2}}
memory:
  ddr: {{value: 64e9}}
compute:
  gemm_fp32: {{value: 1e12}}
  copy: {{value: 1e11}}
  rows: {{points: [{{row_bytes: 64, read: 1e9, update: 0.5e9}}]}}
links:
  self: {{rank: {{value: 1e11}}}}
  host: {{rank: {{value: {rate}}}}}
"""


class MpiLinks(MpiCase):
    def train(self, ranks, *args):
        config = self.write(BASE, values={"train.steps": 2})
        result = self.wait(self.start(self.mpi_command(ranks, "train", config, *args)))
        self.assertEqual(result.code, 0, str(result))
        return result

    def lines(self, result):
        return [line for line in result.err.splitlines() if "links: " in line]

    def test_one_line(self):
        result = self.train(2)
        lines = self.lines(result)
        self.assertEqual(len(lines), 1, str(result))
        self.assertRegex(lines[0], r"links: 2 ranks on 1 host; messages go by .+; 1 pair measured: "
                                   r"\S+ us, \S+ GB/s each way")

    def test_nothing_where_nothing_travels(self):
        self.assertEqual(self.lines(self.train(1)), [])
        config = self.write(BASE, values={"train.steps": 2})
        self.assertEqual(self.lines(self.run_weft("train", config, "--ranks", 2)), [])

    def test_bits_are_those_of_threads(self):
        config = self.write(BASE, values={"train.steps": 2})
        threads = self.run_weft("train", config, "--ranks", 2)
        hashes = [[line for line in result.out.splitlines() if "weights hash" in line]
                  for result in (threads, self.train(2))]
        self.assertTrue(hashes[0])
        self.assertEqual(hashes[0], hashes[1])

    def test_far_below_the_profile(self):
        """A dream of 10^15 bytes per second, and one of a million that every machine has."""
        for rate, warned in ((1e15, 1), (1e6, 0)):
            (self.folder / "c.yaml").write_text(CLUSTER.format(rate=rate))
            result = self.train(2, "--cluster", "c.yaml")
            lines = [line for line in self.lines(result) if "far below" in line]
            self.assertEqual(len(lines), warned, str(result))
            if warned:
                self.assertIn("of cluster c.yaml (links.host.rank)", lines[0])
