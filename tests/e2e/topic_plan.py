"""weft plan: plans that are trained with, reports that say why, and what is refused."""

import json

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
        for says in ("3 tables on 2 ranks of 1 hosts, cluster small", "Proposals", "rank 1",
                     "Parts of a step", "table_wise", "those of the generator"):
            self.assertIn(says, text)
        self.assertTrue(all(len(line) <= 120 for line in text.splitlines()), text)
        report = json.loads(self.plan(config, "--format", "json"))
        self.assertEqual([table["table"] for table in report["tables"]], ["a", "b", "c"])
        self.assertEqual(len(report["ranks"]), 2)
        steps = [proposal["step_s"] for proposal in report["proposals"] if proposal["fits"]]
        self.assertEqual(steps, sorted(steps))
        self.plan(config, "--format", "html", "--output", "page.html")
        self.assertIn("<svg", (self.folder / "page.html").read_text())
        self.assertEqual(self.plan(config, "--format", "yaml"), report["plan"])

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

    def test_plan_of_another_model(self):
        self.plan(self.write(), "--format", "yaml", "--output", "plan.yaml")
        other = self.write(values={"tables.1.num_embeddings": 60})
        self.refused(2, "train", other, "--plan", "plan.yaml", "--ranks", "2", says="table b")

    def test_statistics(self):
        config = self.write()
        stats = self.run_weft("data", "stats", config, "--format", "json").out
        (self.folder / "stats.json").write_text(stats)
        text = self.plan(config, "--stats", "stats.json")
        self.assertNotIn("those of the generator", text)
        (self.folder / "stats.json").write_text("{}")
        self.refused(2, "plan", config, "--cluster", "c.yaml", "--stats", "stats.json",
                     says="stats.json has no statistics")
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

    def test_sets_of_tables(self):
        for name in ("criteo_kaggle", "mlperf_dcnv2", "production:2", "adversarial:2"):
            report = json.loads(self.run_weft(
                "plan", "--tables", name, "--cluster", SOURCE / "clusters/h100_8x400ib.yaml",
                "--ranks", 64, "--format", "json").out)
            self.assertEqual(len(report["ranks"]), 64)
            self.assertTrue(report["proposals"][0]["fits"])
