"""Many kinds of job: each trains, evaluates and gives equal bits on 1 and 3 ranks."""

import os
from unittest import mock

from harness import (BASE, CRITEO, SOURCE, Case, criteo_text, real_data, with_values,
                     write_movielens)

SEQUENCE = with_values(BASE, {
    "sparse_features.2.pooling": "none",
    "sparse_features.2.target": "a",
    "model.attention_mlp": [8],
})

MOVIELENS = {
    "version": 1,
    "batch_size": 50,
    "data": {"format": "movielens", "path": "ml"},
    "dense_features": [{"name": "click_rate"}, {"name": "history", "transform": "log"}],
    "sparse_features": [
        {"name": "user", "mapping": "vocabulary"},
        {"name": "film"},
        {"name": "genres", "mapping": "modulo", "pooling": "mean"},
        {"name": "hour", "mapping": "identity"},
        {"name": "liked", "table": "film", "pooling": "none", "target": "film"},
    ],
    "tables": [
        {"name": name, "num_embeddings": rows, "embedding_dim": 8}
        for name, rows in (("user", 30), ("film", 40), ("genres", 8), ("hour", 24))
    ],
    "model": {"type": "dlrm", "bottom_mlp": [8], "top_mlp": [8]},
}


class Shapes(Case):
    def check(self, values, config=BASE, ranks=(1, 3), args=()):
        """Equal bits on all of `ranks`; returns the summary."""
        name = self.write(config, values=values)
        one = self.train(name, *args, ranks=ranks[0])
        for count in ranks[1:]:
            other = self.train(name, *args, ranks=count)
            self.assert_same_bits(one, other, f"{values} on {count} ranks")
            for key in ("samples", "steps", "loss", "auc"):
                self.assertEqual(one[key], other[key], key)
        return one

    def test_batches(self):
        for values, samples, steps in (
            ({"batch_size": 5000}, 1000, 1),  # more than there is
            ({"batch_size": 2, "train.steps": 9}, 18, 9),  # fewer samples than ranks
            ({"batch_size": 1, "train.steps": 5}, 5, 5),
            ({"batch_size": 999}, 1000, 2),  # the last batch has one sample
            ({"batch_size": 999, "train.epochs": 2}, 2000, 4),
            ({"data.synthetic.samples": 1, "data.synthetic.eval_samples": 1}, 1, 1),
            ({"data.max_samples": 7, "data.max_eval_samples": 3}, 7, 1),
            ({"data.shuffle": {"enabled": False}, "data.read_ahead": 1}, 1000, 16),
            ({"data.shuffle": {"window": 10}, "data.read_ahead": 64}, 1000, 16),
        ):
            summary = self.check(values, ranks=(1, 3, 5))
            self.assertEqual((summary["samples"], summary["steps"]), (samples, steps), values)

    def test_tables(self):
        for values in (
            {"tables.0.num_embeddings": 1, "sparse_features.0.mapping": "modulo"},
            {"tables.0.num_embeddings": 2, "sparse_features.0.mapping": "hash"},  # rows < ranks
            {"data.synthetic.columns.1.missing": 1},  # an empty feature
            {"data.synthetic.columns.0.cardinality": 1, "data.synthetic.columns.0.repeat": 0},
            {"sparse_features.2.table": "a", "sparse_features.1.table": "a"},  # shared
            {"sparse_features.2.max_length": 1},
            {"sparse_features.0.mapping": "vocabulary", "sparse_features.0.min_count": 3},
            {"data.synthetic.columns.2.weighted": True, "sparse_features.2.weighted": True,
             "sparse_features.2.pooling": "sum"},
            {"tables.0.embedding_dim": 5, "model.projection_dim": 32},
            {"tables.0.init": "zero", "tables.1.init": "normal", "tables.2.init_scale": 0.5},
        ):
            self.check(values)

    def test_shardings(self):
        kinds = ("table_wise", "row_wise", "column_wise", "data_parallel")
        hashes = set()
        for a in kinds:
            for c in ("table_wise", "column_wise", "data_parallel"):  # bags of several ids
                summary = self.check({"tables.0.sharding": a, "tables.1.sharding": a,
                                      "tables.2.sharding": c}, ranks=(3, 2))
                hashes.add(summary["state_hash"])
        self.assertEqual(len(hashes), 1)

    def test_shardings_within_hosts_and_grids(self):
        expected = self.train(self.write())["state_hash"]
        for kind in ("table_row_wise", "grid_shard"):
            for rows in ("range", "modulo"):
                summary = self.check({"tables.0.sharding": kind, "tables.1.sharding": kind,
                                      "tables.0.row_split": rows, "tables.1.row_split": rows,
                                      "tables.2.sharding": "table_column_wise"}, ranks=(4, 3))
                self.assertEqual(summary["state_hash"], expected)

    def test_row_wise_of_bags(self):
        """Splitting a bag changes the order of a sum, so only nearness is promised."""
        whole = self.train(self.write())
        split = self.train(self.write(values={"tables.2.sharding": "row_wise"}), ranks=3)
        self.assertAlmostEqual(whole["eval"]["loss"], split["eval"]["loss"], places=4)

    def test_sparse_optimizers(self):
        for kind in ("sgd", "adagrad", "row_wise_adagrad", "adam", "row_wise_adam"):
            for more in ({}, {"weight_decay": 0.01, "weight_decay_mode": "l2"},
                         {"weight_decay": 0.01, "weight_decay_mode": "decoupled", "max_norm": 0.1}):
                self.check({"sparse_optimizer": {"type": kind, **more}, "train.steps": 5,
                            "tables.0.sharding": "row_wise", "tables.1.sharding": "data_parallel",
                            "tables.2.sharding": "column_wise"})

    def test_dense_optimizers_and_schedules(self):
        for dense in ({"type": "sgd", "clip_norm": 0.1}, {"type": "adagrad"},
                      {"type": "adam", "weight_decay": 0.01, "clip_norm": 1}):
            self.check({"dense_optimizer": dense, "schedule": {
                "type": "polynomial", "warmup_steps": 3, "decay_start": 5, "decay_steps": 8,
                "final_factor": 0.1}})

    def test_dtypes(self):
        for dtype in ("fp16", "bf16", "split_bf16"):
            self.check({f"tables.{i}.dtype": dtype for i in range(3)} |
                       {f"tables.{i}.sharding": kind for i, kind in enumerate(
                           ("row_wise", "data_parallel", "column_wise"))})

    def test_models(self):
        for config in (BASE, SEQUENCE):
            for model in ({"type": "dlrm"}, {"type": "deepfm"},
                          {"type": "dcnv2", "cross_layers": 2, "cross_rank": 8}):
                for sequence in ("attention", "mean"):
                    self.check({f"model.{key}": value for key, value in
                                {**model, "sequence": sequence}.items()}, config)

    def test_sequences_are_never_split(self):
        hashes = {self.check({"tables.2.sharding": kind}, SEQUENCE)["state_hash"]
                  for kind in ("table_wise", "row_wise", "column_wise", "data_parallel",
                               "table_row_wise", "table_column_wise", "grid_shard")}
        self.assertEqual(len(hashes), 1)

    def test_bf16_compute(self):
        self.check({"model.compute": "bf16"}, SEQUENCE)

    def test_targets(self):
        """Older instruction sets run everywhere; their bits are their own."""
        with mock.patch.dict(os.environ):
            os.environ.pop("ONEDNN_MAX_CPU_ISA", None)  # it may allow less
            for target in ("sse4", "avx2"):
                summary = self.check({"numerics.target": target, "tables.1.dtype": "fp16"}, SEQUENCE)
                self.assertEqual(summary["target"], target)

    def test_parts(self):
        for parts in (1, 3, 16):
            summary = self.check({"numerics.parts": parts}, ranks=(1,) if parts == 1 else (1, 3))
            self.assertEqual(summary["parts"], parts)

    def test_check_device(self):
        """The CPU with its own address space and random delays gives the same bits."""
        kinds = {f"tables.{i}.sharding": kind for i, kind in enumerate(
            ("row_wise", "column_wise", "data_parallel"))}
        cpu = self.check(kinds, SEQUENCE, ranks=(3,))
        for values in ({"train.device": "check"}, {"train.overlap": False}):
            self.assert_same_bits(cpu, self.check({**kinds, **values}, SEQUENCE, ranks=(1, 2)))

    def test_tasks(self):
        write_movielens(self.folder / "ml")
        tasks = [{"name": "click", "weight": 2},
                 {"name": "weighted", "weight_column": "click_rate", "weight": 0.5}]
        summary = self.check({"tasks": tasks}, MOVIELENS)
        self.assertEqual([task["task"] for task in summary["tasks"]], ["click", "weighted"])
        self.assertEqual([task["samples"] for task in summary["eval"]["tasks"]], [60, 60])
        for task in summary["eval"]["tasks"]:
            self.assertTrue(0 < task["auc"] < 1)
        self.assertNotEqual(*(task["auc"] for task in summary["eval"]["tasks"]))

    def test_without_dense_or_sparse(self):
        self.check({"dense_features": [], "model": {"type": "dcnv2", "top_mlp": [8],
                                                    "cross_layers": 1, "cross_rank": 4}})

    def test_criteo(self):
        (self.folder / "train.txt").write_text(criteo_text(150))
        (self.folder / "more.txt").write_text(criteo_text(77, seed=2))
        self.assertEqual(self.check({}, CRITEO)["samples"], 150)
        for path in (["train.txt", "more.txt"], "*.txt"):
            self.assertEqual(self.check({"data.path": path}, CRITEO)["samples"], 227)

    def test_movielens(self):
        write_movielens(self.folder / "ml")
        summary = self.check({}, MOVIELENS)
        self.assertEqual((summary["samples"], summary["eval"]["samples"]), (540, 60))

    def test_weft_files(self):
        """A file of our own format trains the same model as the data it was made of."""
        job = self.write()
        self.run_weft("data", "generate", job, "--out", "train.weft", "--quiet")
        self.run_weft("data", "generate", job, "--split", "eval", "--out", "eval.weft", "--quiet")
        generated = self.train(job)
        stored = self.check({"data": {"format": "weft", "path": "train.weft",
                                      "eval_path": "eval.weft"}})
        self.assert_same_bits(generated, stored)
        self.assertEqual(generated["bayes_ne"], stored["bayes_ne"])

    def test_many_tables(self):
        columns = {"name": "C{1..300}", "cardinality": 5}
        self.check({
            "data.synthetic.columns": [columns],
            "sparse_features": [{"name": "C{1..300}", "mapping": "identity"}],
            "tables": [{"name": "C{1..300}", "num_embeddings": 5, "embedding_dim": 4}],
            "model": {"type": "deepfm", "bottom_mlp": [4], "top_mlp": [4]},
            "train.steps": 2,
        })


class RealData(Case):
    def check(self, example, folder, file=""):
        data = real_data(folder)
        if data is None:
            self.skipTest(f"{folder} is not there")
        hashes = [self.train(SOURCE / "examples" / example, "--set", f"data.path={data / file}",
                             "--set", "train.steps=4", "--set", "data.max_eval_samples=500",
                             ranks=ranks)["state_hash"] for ranks in (1, 2)]
        self.assertEqual(hashes[0], hashes[1])

    def test_criteo(self):
        self.check("criteo.yaml", "criteo-kaggle-sample", "train.txt")

    def test_movielens(self):
        self.check("movielens.yaml", "ml-latest-small")
