"""Values that are not finite: stop or skip, the same on all ranks."""

from harness import BASE, Case, MpiCase, with_values

HOT = with_values(BASE, {"dense_optimizer": {"type": "sgd", "learning_rate": 1e30}})
# The gradients are finite, the updated rows are not.
OVERFLOW = with_values(BASE, {"sparse_optimizer": {"type": "sgd", "learning_rate": 1e30},
                              "tasks": [{"name": "click", "weight": 1e30}]})


class NonFinite(Case):
    def test_stop_names_step_rank_and_sample(self):
        config = self.write(HOT)
        errors = set()
        for ranks in (1, 2, 3):
            result = self.run_weft("train", config, "--ranks", ranks, "--summary", "s.json", code=1)
            self.assertRegex(result.err, r"weft: error: rank \d+: step 2: a loss or gradient is not "
                                         r"finite, first on rank \d+ for sample \d+ ")
            self.assertFalse((self.folder / "s.json").exists())
            errors.add(result.err.split("for sample ")[1])
        self.assertEqual(len(errors), 1, "another sample with other ranks")

    def test_skip(self):
        config = self.write(HOT, values={"train.on_non_finite": "skip"})
        one = self.train(config)
        self.assertEqual(one["skipped_steps"], 15)  # all but the first
        self.assertEqual(one["steps"], 16)
        for ranks in (2, 3):
            other = self.train(config, ranks=ranks)
            self.assert_same_bits(one, other)
            self.assertEqual(other["skipped_steps"], 15)
        # Nothing was updated behind the flag.
        self.assert_same_bits(one, self.train(config, "--set", "train.steps=1"))

    def test_skipped_steps_and_resume(self):
        config = self.write(HOT, values={"train.on_non_finite": "skip"})
        whole = self.train(config)
        self.train(config, "--set", "train.steps=5", "--checkpoint", "ck")
        self.assert_same_bits(whole, self.train(config, "--resume", "ck", ranks=2))

    def test_skipping_has_a_limit(self):
        config = self.write(HOT, values={"train.on_non_finite": "skip", "train.max_skipped": 4})
        for ranks in (1, 3):
            self.refused(1, "train", config, "--ranks", ranks, "--checkpoint", f"ck{ranks}",
                         "--checkpoint-every", "1", "--checkpoint-keep", "1",
                         says=["step 5: skipped", "4 of the 5 steps", "train.max_skipped 4"])
            self.assertEqual([p.name for p in sorted(self.folder.glob(f"ck{ranks}/step-*"))],
                             ["step-00000001"], "that from before the trouble stays")

    def test_overflowing_row_is_named(self):
        for sharding in ("table_wise", "row_wise", "column_wise", "data_parallel", "grid_shard"):
            config = self.write(OVERFLOW, values={f"tables.{i}.sharding": sharding for i in range(3)})
            for more in ([], ["--set", "train.on_non_finite=skip"], ["--set", "train.steps=1"]):
                self.refused(1, "train", config, "--ranks", "2", *more,
                             says=["table a, row ", "overflowed", "not applied"])

    def test_no_checkpoint_of_an_overflow(self):
        config = self.write(OVERFLOW)
        self.refused(1, "train", config, "--checkpoint", "ck", "--checkpoint-every", "1",
                     says="overflowed")
        self.assertEqual(list(self.folder.glob("ck/step-*")), [])

    def test_overflowing_dense_parameter_is_named(self):
        # Eight parts have finite gradients whose sum is not.
        config = self.write(BASE, values={
            "tasks": [{"name": "click", "weight": 1e30}],
            "dense_features.0.transform": "standard",
            "dense_features.0.scale": 4e-9,
            "dense_optimizer": {"type": "sgd"},
            "sparse_optimizer": {"type": "sgd", "learning_rate": 0},
        })
        for ranks in (1, 3):
            self.refused(1, "train", config, "--ranks", ranks, "--set", "train.steps=1",
                         says=["dense parameter dense.", "overflowed"])


class MpiNonFinite(MpiCase):
    def test_all_ranks_end(self):
        for config, says in ((HOT, "step 2: a loss or gradient is not finite"),
                             (OVERFLOW, "table a, row ")):
            result = self.wait(self.start(self.mpi_command(2, "train", self.write(config))))
            self.assertEqual(result.code, 1, str(result))
            self.assertIn(says, result.err)
