"""weft plan: plans that are trained with, reports that say why, and what is refused."""

import json
import re

from harness import BASE, SOURCE, Case, with_values

CLUSTER = {
    "version": 1,
    "name": "small",
    "hosts": [{"count": 1, "ranks": 2}],
    "memory": {"ddr": {"value": 1e9}},
    "compute": {
        "gemm_fp32": {"value": 1e10},
        "copy": {"value": 1e10},
        "rows": {"points": [{"row_bytes": 64, "read": 1e9, "update": 0.5e9}]},
    },
    "links": {"self": {"rank": {"value": 1e10}}, "host": {"rank": {"value": 1e9}},
              "network": {"rank": {"value": 1e9}}},
}


class Plan(Case):
    def setUp(self):
        super().setUp()
        self.cluster()

    def cluster(self, values=None):
        (self.folder / "c.yaml").write_text(json.dumps(with_values(CLUSTER, values or {})))

    def plan(self, config, *args):
        return self.run_weft("plan", config, "--cluster", "c.yaml", *args).out

    def test_formats(self):
        config = self.write()
        text = self.plan(config)
        for says in ("3 tables on 2 ranks of 1 host, cluster small", "Proposals", "rank 1",
                     "Parts of a step", "table_wise", "those of the generator"):
            self.assertIn(says, text)
        self.assertTrue(all(len(line) <= 120 for line in text.splitlines()), text)
        report = json.loads(self.plan(config, "--format", "json"))
        self.assertEqual([table["table"] for table in report["tables"]], ["a", "b", "c"])
        self.assertEqual(len(report["ranks"]), 2)
        steps = [proposal["step_s"] for proposal in report["proposals"] if proposal["fits"]]
        self.assertEqual(steps, sorted(steps))
        self.plan(config, "--format", "html", "--output", "page.html")
        page = (self.folder / "page.html").read_text()
        for says in ("<svg", "exchange between ranks</span>", "does not fit into memory</span>",
                     " ms</text>", "batch_size: 64  # default: 2048",
                     f"from {config} for cluster c.yaml"):
            self.assertIn(says, page)
        self.assertRegex(page, r"Made 2\d{3}-\d\d-\d\d \d\d:\d\d UTC by weft \d+\.\d+\.\d+ on \S+ ")
        self.assertEqual(self.plan(config, "--format", "yaml"), report["plan"])

    def test_a_job_on_a_set_of_tables(self):
        """weft config --tables prints a configuration that reads as the same one."""
        job = self.run_weft("config", "--tables", "criteo_kaggle", "--changed").out
        (self.folder / "set.yaml").write_text(job)
        self.assertEqual(self.run_weft("config", "set.yaml", "--changed").out, job)
        self.assertEqual(job.count("num_embeddings:"), 26)
        self.assertIn("num_embeddings: 10131227", job)
        self.refused(2, "config", "--tables", "none", says="production[:SEED]")
        self.refused(2, "config", "set.yaml", "--tables", "criteo_kaggle", says="name a configuration, or a set")
        changed = self.run_weft("config", "--tables", "criteo_kaggle", "--set", "batch_size=77").out
        self.assertIn("batch_size: 77\n", changed)
        self.refused(2, "config", "--tables", "criteo_kaggle", "--set", "batchsize=1",
                     says=("batchsize", "did you mean"))

    def test_hot_rows(self):
        """Statistics, a plan with hot rows, and the bits of one rank: no bag has two ids."""
        values = {"data.synthetic.columns.2.max_length": 1}
        one = self.train(self.write(values=values))
        values.update({"tables.0.hot_rows": 20, "tables.0.sharding": "row_wise",
                       "tables.2.hot_rows": 5})
        config = self.write(values=values)
        self.refused(2, "train", config, says=("tables.a.hot_rows: 20 rows", "--hot-rows 20"))
        self.refused(2, "plan", config, "--cluster", "c.yaml", says="tables.a.hot_rows: 20 rows")
        listed = self.run_weft("data", "stats", config, "--format", "json", "--hot-rows", "20").out
        (self.folder / "stats.json").write_text(listed)
        stats = ("--stats", "stats.json")
        hot = sorted(json.loads(listed)["hot_rows"][0]["rows"])
        rows = {row for row in range(300)
                if any(begin <= row < end for begin, end in self.hot_rows(config, *stats)["a"])}
        self.assertEqual(sorted(rows), hot)
        for ranks in (2, 3):
            trained = self.train(config, *stats, "--out", "out", ranks=ranks)
            self.assert_same_bits(one, trained)
            self.assertIn("head: [[", (self.folder / "out/plan.yaml").read_text())
        self.plan(config, *stats, "--ranks", 3, "--format", "yaml", "--output", "plan.yaml")
        self.assert_same_bits(one, self.train(config, "--plan", "plan.yaml", ranks=3))
        planned = self.train(config, "--cluster", "c.yaml", *stats, ranks=2)
        self.assert_same_bits(one, planned)
        # Replica groups have the hot rows in common.
        groups = ("--set", "mesh.groups=2", "--set", "mesh.sync=gradients")
        self.assert_same_bits(one, self.train(config, *stats, *groups, ranks=4))
        self.refused(2, "train", config, "--plan", "plan.yaml", *stats,
                     says="--plan excludes --stats")
        self.refused(2, "train", config, "--stats", "absent.json", says="absent.json")
        self.refused(2, "train", self.write(values={**values, "tables.0.hot_rows": 21}), *stats,
                     says="list 20 only")
        self.refused(2, "train", self.write(values={**values, "tables.0.hot_rows": 300}), *stats,
                     says="tables.a.hot_rows: 300 hot rows")

    def hot_rows(self, config, *args):
        report = json.loads(self.plan(config, *args, "--format", "json"))
        tables = report["plan"].split("- table: ")[1:]
        found = {}
        for text in tables:
            line = next((one for one in text.splitlines() if "head: [[" in one), "head: []")
            found[text.split()[0]] = json.loads(line.split("head: ")[1])
        for table in report["tables"]:
            self.assertEqual(table["head_rows"], sum(e - b for b, e in found[table["table"]]))
        return found

    def test_plan_is_trained_with(self):
        """Whoever holds what, the bits are those of one rank."""
        config = self.write(values={"data.synthetic.columns.2.max_length": 1})
        one = self.train(config)
        for ranks in (2, 3, 5):
            self.plan(config, "--ranks", ranks, "--format", "yaml", "--output", "plan.yaml")
            planned = self.train(config, "--plan", "plan.yaml", "--out", "out", ranks=ranks)
            self.assert_same_bits(one, planned)
            self.assertEqual((self.folder / "out/plan.yaml").read_text(),
                             (self.folder / "plan.yaml").read_text())
        self.refused(2, "train", config, "--plan", "plan.yaml", "--ranks", "2",
                     says=("plan.yaml is for 5 ranks", "2"))

    def test_job_that_plans_for_a_cluster(self):
        config = self.write()
        self.plan(config, "--ranks", 3, "--format", "yaml", "--output", "plan.yaml")
        planned = self.train(config, "--plan", "plan.yaml", ranks=3)
        self.assert_same_bits(planned, self.train(config, "--cluster", "c.yaml", "--out", "out",
                                                  ranks=3))
        self.assertEqual((self.folder / "out/plan.yaml").read_text(),
                         (self.folder / "plan.yaml").read_text())
        self.refused(2, "train", config, "--cluster", "c.yaml", "--plan", "plan.yaml",
                     says="--plan excludes --cluster")
        self.refused(2, "train", config, "--cluster", "absent.yaml", says="absent.yaml")
        self.cluster({"memory.ddr.value": 1e4})
        self.refused(2, "train", config, "--cluster", "c.yaml", says="no plan fits")

    def test_replica_groups(self):
        """What the planner chose is in the plan, and trains as if it had been asked for."""
        self.cluster({"hosts": [{"count": 2, "ranks": 2}], "links.network.rank.value": 1e5})
        config = self.write(values={"tables.0.sharding": "row_wise"})
        mesh = ("--set", "mesh.groups=2", "--set", "mesh.sync=auto", "--set", "mesh.sync_every=0")
        text = self.plan(config, *mesh)
        for says in ("2 groups of 2 ranks", "Replica groups", "g A / 2", "gradients", "chosen"):
            self.assertIn(says, text)
        of_meshes = text.partition("\nProposals")[0].splitlines()
        self.assertTrue(all(len(line) <= 120 for line in of_meshes), text)
        report = json.loads(self.plan(config, *mesh, "--format", "json"))
        self.assertEqual(len(report["ranks"]), 4)
        self.assertEqual(len(report["meshes"]), 6)
        self.plan(config, *mesh, "--format", "yaml", "--output", "plan.yaml")
        planned = self.train(config, *mesh, "--cluster", "c.yaml", "--out", "out", ranks=4)
        self.assertEqual((self.folder / "out/plan.yaml").read_text(),
                         (self.folder / "plan.yaml").read_text())
        chosen = report["mesh"]
        asked = ("--set", "mesh.groups=2", "--set", f"mesh.sync={chosen['sync']}", "--set",
                 f"mesh.sync_every={chosen['sync_every']}")
        self.assert_same_bits(planned, self.train(config, *asked, "--plan", "plan.yaml", ranks=4))
        self.assertIn(f"sync: {chosen['sync']}", (self.folder / "out/config.yaml").read_text())
        free = json.loads(self.plan(config, "--set", "mesh.groups=0", "--format", "json"))
        self.assertEqual({one["groups"] for one in free["meshes"]}, {1, 2, 4})
        self.refused(2, "plan", config, "--cluster", "c.yaml", "--set", "mesh.groups=3",
                     says="3 groups do not divide 4 ranks; set 2 or 4")

    def test_plan_of_another_model(self):
        self.plan(self.write(), "--format", "yaml", "--output", "plan.yaml")
        other = self.write(values={"tables.1.num_embeddings": 60})
        self.refused(2, "train", other, "--plan", "plan.yaml", "--ranks", "2", says="table b")

    def test_plan_against_pinned_keys(self):
        """What a plan has otherwise than the configuration pins it is refused with both values."""
        config = self.write()
        self.train(config, "--out", "out", "--set", "tables.c.sharding=row_wise", ranks=2)
        plan = ["--plan", "out/plan.yaml", "--ranks", "2"]
        self.run_weft("train", config, *plan)
        for change, says in (
                ("tables.c.sharding=column_wise", "column_wise in the configuration and the plan has "
                 "row_wise; set row_wise or auto"),
                ("tables.c.rank=0", "has a shard on 1"),
                ("tables.c.allow=[data_parallel]", "[data_parallel] in the configuration"),
                ("tables.c.pooled_at=sample", "sample in the configuration"),
                ("mesh.groups=2", "mesh.groups is 2")):
            self.refused(2, "train", config, *plan, "--set", change,
                         says=("out/plan.yaml: ", change.split("=")[0], says))

    def test_plan_that_leaves_things_out(self):
        config = self.write()
        self.train(config, "--out", "out", ranks=2)
        text = (self.folder / "out/plan.yaml").read_text()
        for old, new, says in (
                ("layout: local_all_to_all", "layout: auto", ("p.yaml:4:", "layout: 'auto' is none")),
                (r" *rows: \[0, 300\]\n", "", "tables.a.shards.0: the key 'rows' is missing"),
                (r"hosts: \[\]", "hosts: [1, 0]", "rank 0 on host 1, where the next host is 0")):
            bad = re.sub(old, new, text)
            self.assertNotEqual(bad, text)
            (self.folder / "p.yaml").write_text(bad)
            self.refused(2, "train", config, "--plan", "p.yaml", "--ranks", "2", says=says)
        (self.folder / "p.yaml").write_text("version: 1\nranks: 2\nparts: 8\ntables:\n")
        self.refused(2, "train", config, "--plan", "p.yaml", "--ranks", "2",
                     says="tables: has no value")

    def test_allow_without_a_cluster(self):
        config = self.write(values={"tables.0.allow": ["row_wise"]})
        result = self.run_weft("train", config, "--ranks", 2)
        self.assertIn("allow is for a plan for a cluster: without --cluster these tables are whole "
                      "on one rank: a", result.err)
        config = self.write(values={"tables.0.allow": ["data_parallel"]})
        result = self.run_weft("train", config, "--ranks", 2, "--out", "out")
        self.assertNotIn("allow is for", result.err)
        self.assertIn("data_parallel", (self.folder / "out/plan.yaml").read_text())

    def test_statistics(self):
        config = self.write()
        stats = self.run_weft("data", "stats", config, "--format", "json").out
        (self.folder / "stats.json").write_text(stats)
        text = self.plan(config, "--stats", "stats.json")
        self.assertNotIn("those of the generator", text)
        (self.folder / "stats.json").write_text("{}")
        self.refused(2, "plan", config, "--cluster", "c.yaml", "--stats", "stats.json",
                     says="stats.json has no statistics")
        good = json.loads(stats)
        for key, value, says in (("length_mean", -1, "length_mean -1, not a number from 0 to"),
                                 ("missing", None, "missing null, not a number"),
                                 ("top_10", [0.5], "top_10 [0.5], not a number")):
            bad = json.loads(stats)
            bad["categorical"][1][key] = value
            (self.folder / "stats.json").write_text(json.dumps(bad))
            self.refused(2, "plan", config, "--cluster", "c.yaml", "--stats", "stats.json",
                         says=("stats.json", "column b (of feature b)", says))
        (self.folder / "stats.json").write_text(json.dumps(good)[:-9])
        self.refused(2, "plan", config, "--cluster", "c.yaml", "--stats", "stats.json",
                     says=("stats.json", "no JSON"))
        self.refused(1, "plan", config, "--cluster", "c.yaml", "--stats", "absent.json",
                     says="cannot read absent.json")

    def test_what_does_not_fit(self):
        self.cluster({"memory.ddr.value": 1e5})
        config = self.write(values={"tables.0.num_embeddings": 3000})
        self.refused(2, "plan", config, "--cluster", "c.yaml",
                     says=("no plan fits", "table a", "ranks of this kind", "memory per rank"))

    def test_bad_arguments(self):
        config = self.write()
        self.refused(2, "plan", "--cluster", "c.yaml", says="name a configuration, or a set")
        self.refused(2, "plan", config, "--tables", "production", "--cluster", "c.yaml",
                     says="name a configuration, or a set")
        for name in ("productoin", "production:", "production:-1", "production:1x",
                     "criteo_kaggle:1"):
            self.refused(2, "plan", "--tables", name, "--cluster", "c.yaml", says=name)
        self.refused(2, "plan", self.write(values={"tables.0.rank": 7}), "--cluster", "c.yaml",
                     says=("tables.a.rank", "no rank 7"))
        for values, says in (({"tables.0.allow": ["row_wize"]}, "did you mean 'row_wise'"),
                             ({"tables.0.allow": ["row_wise"], "tables.0.sharding": "table_wise"},
                              "goes with sharding auto")):
            self.refused(2, "plan", self.write(values=values), "--cluster", "c.yaml",
                         says=("tables.a.allow", says))
        self.refused(2, "plan", self.write(values={"numerics.parts": 1}), "--cluster", "c.yaml",
                     says="numerics.parts")

    def test_scaling(self):
        config = self.write()
        text = self.plan(config, "--scaling", "1,2,4")
        for says in ("strong: one batch", "weak: as many samples a rank", "cluster small"):
            self.assertIn(says, text)
        self.assertTrue(all(len(line) <= 120 for line in text.splitlines()), text)
        report = json.loads(self.plan(config, "--scaling", "1,2,4", "--format", "json"))
        before = self.run_weft("plan", "--cluster", "c.yaml", "--format", "json", "--scaling", "1,2,4", config).out
        self.assertEqual(json.loads(before), report, "the configuration behind the numbers")
        batch = report["strong"][0]["batch_size"]
        self.assertEqual([p["batch_size"] for p in report["strong"]], [batch] * 3)
        self.assertEqual([p["batch_size"] for p in report["weak"]], [batch, 2 * batch, 4 * batch])
        of_two = json.loads(self.plan(config, "--ranks", 2, "--set", f"batch_size={2 * batch}",
                                      "--format", "json"))
        self.assertEqual(report["weak"][1]["step_s"], of_two["step_s"])
        sets = ["plan", "--tables", "criteo_kaggle", "--set", "batch_size=1024",
                "--cluster", SOURCE / "clusters/h100_8x400ib.yaml", "--format", "json"]
        report = json.loads(self.run_weft(*sets, "--scaling", "8,16").out)
        self.assertEqual([p["batch_size"] for p in report["weak"]], [1024, 2048])
        for args, says in ((("--format", "yaml"), "--scaling makes a plan for each number"),
                           (("--format", "html"), "--scaling makes a plan for each number"),
                           (("--ranks", "2"), "--ranks excludes --scaling")):
            self.refused(2, "plan", config, "--cluster", "c.yaml", "--scaling", "1,2", *args, says=says)
        for ranks in ("0", "1,two", "65537"):
            self.refused(2, "plan", config, "--cluster", "c.yaml", "--scaling", ranks, says="--scaling")

    def test_sets_of_tables(self):
        for name in ("criteo_kaggle", "mlperf_dcnv2", "production:2", "adversarial:2"):
            report = json.loads(self.run_weft(
                "plan", "--tables", name, "--cluster", SOURCE / "clusters/h100_8x400ib.yaml",
                "--ranks", 64, "--format", "json").out)
            self.assertEqual(len(report["ranks"]), 64)
            self.assertTrue(report["proposals"][0]["fits"])
