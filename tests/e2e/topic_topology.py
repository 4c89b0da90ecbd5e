"""Clusters: files that are shown, files that are refused, and machines that are measured."""

from harness import SOURCE, Case, MpiCase

CLUSTER = """version: 1
name: two
hosts:
  - {count: 2, ranks: 4}
memory:
  ddr: {value: 64e9}
compute:
  gemm_fp32: {value: 1e12}
  copy: {value: 1e11}
  rows: {points: [{row_bytes: 64, read: 1e9, update: 0.5e9}]}
links:
  self: {rank: {value: 1e11}}
  host: {rank: {value: 1e10}}
  network: {rank: {value: 12.5e9, efficiency: 0.8, source: "100 Gb/s"}, latency: {value: 2e-6}}
"""


class TopologyChecks:
    def check_file(self, name, ranks, hosts):
        """Shown, and the same again after a round trip."""
        text = self.run_weft("topology", "show", name).out
        self.assertRegex(text, f"{ranks} ranks? on {hosts} hosts?")
        self.assertIn("gemm fp32", text)
        again = self.run_weft("topology", "show", name, "--yaml").out
        (self.folder / "again.yaml").write_text(again)
        self.assertEqual(self.run_weft("topology", "show", "again.yaml", "--yaml").out, again)
        return again


class Topology(TopologyChecks, Case):
    def write_cluster(self, changes=()):
        text = CLUSTER
        for old, new in changes:
            self.assertIn(old, text)
            text = text.replace(old, new)
        (self.folder / "c.yaml").write_text(text)

    def test_show(self):
        self.write_cluster()
        self.check_file("c.yaml", 8, 2)
        self.assertIn("10 GB/s  (0.8 of 12.5 GB/s)  100 Gb/s",
                      self.run_weft("topology", "show", "c.yaml").out)

    def test_profiles(self):
        files = sorted((SOURCE / "clusters").glob("*.yaml"))
        self.assertGreaterEqual(len(files), 7)
        for path in files:
            self.check_file(path, *((8, 4) if path.name.startswith("cpu") else (16, 2)))

    def test_bad_files(self):
        network = "  network: {rank: {value: 12.5e9, efficiency: 0.8, source: \"100 Gb/s\"}, " \
                  "latency: {value: 2e-6}}\n"
        for old, new, says in (
            (network, "", "c.yaml:12:3: links.network is missing but there are 2 hosts"),
            ("gemm_fp32", "gemm_fp23", ["c.yaml:8:3: compute.gemm_fp23: unknown key",
                                        "did you mean 'gemm_fp32'?"]),
            ("12.5e9", "-12.5e9", ["links.network.rank.value: must be at least 0 bytes/s"]),
            ("ranks: 4", "ranks: 0", ["c.yaml:4:23: hosts.0.ranks: must be", "is 0"]),
            ("count: 2", "count: -1", "hosts.0.count: must be"),
            ("count: 2", "count: 60000", "too many; at most 65536"),
            ("efficiency: 0.8", "efficiency: 80", "links.network.rank.efficiency: must be 0 to 1"),
            ("64e9", "64 GB", "memory.ddr.value: expected a number, found '64 GB'"),
            ("version: 1\n", "", "the key 'version' is missing"),
            ("name: two", "name: two\nname: three", "stands twice"),
            ("row_bytes: 64, ", "", "must be"),
            (CLUSTER, "", "holds nothing"),
            (CLUSTER, "{", "not YAML"),
        ):
            self.write_cluster([(old, new)])
            self.refused(2, "topology", "show", "c.yaml", says=says)

    def test_bad_usage(self):
        self.write_cluster()
        for args, says in (
            (["topology"], "subcommand"),
            (["topology", "show"], "FILE"),
            (["topology", "show", "absent.yaml"], "cannot read the cluster 'absent.yaml'"),
            (["topology", "show", "."], "directory"),
            (["topology", "calibrate", "--ranks", "0"], "--ranks"),
            (["topology", "calibrate", "--threads", "-1"], "--threads"),
            (["topology", "calibrate", "--output", ""], "--output"),
        ):
            self.refused(2, *args, says=says)
        self.refused(1, "topology", "calibrate", "--quick", "--output", "absent/c.yaml",
                     says="absent/c.yaml")
        self.assertFalse((self.folder / "absent").exists())

    def test_calibrate(self):
        for ranks in (1, 2, 3):
            result = self.run_weft("topology", "calibrate", "--quick", "--ranks", ranks,
                                   "--output", "m.yaml", "--name", "here")
            self.assertIn(f"here: {ranks} rank{'s'[:ranks > 1]} on 1 host", result.out)
            self.check_file("m.yaml", ranks, 1)
        # Without a file the YAML itself.
        out = self.run_weft("topology", "calibrate", "--quick").out
        (self.folder / "out.yaml").write_text(out)
        self.assertEqual(self.run_weft("topology", "show", "out.yaml", "--yaml").out, out)


class MpiTopology(TopologyChecks, MpiCase):
    def test_calibrate(self):
        for ranks in (1, 2, 3):
            result = self.wait(self.start(self.mpi_command(
                ranks, "topology", "calibrate", "--quick", "--threads", 1, "--output", "m.yaml")))
            self.assertEqual(result.code, 0, str(result))
            yaml = self.check_file("m.yaml", ranks, 1)
            self.assertEqual(yaml.count("all_to_all of 64 B to 1 MiB"), int(ranks > 1))
