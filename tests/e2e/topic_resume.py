"""Checkpoints: resuming gives the bits of never having stopped."""

import json
import re
import shutil

from harness import BASE, Case, MpiCase, with_values

# Long enough to cross an epoch (16 steps), with state in every kind of table.
LONG = with_values(BASE, {
    "train.steps": 24,
    "tables.0.optimizer": {"type": "row_wise_adam"},
    "tables.0.dtype": "split_bf16",
    "tables.1.optimizer": {"type": "adagrad"},
    "tables.1.dtype": "bf16",
    "tables.2.optimizer": {"type": "adam", "max_norm": 0.5},
    "schedule": {"type": "polynomial", "warmup_steps": 4, "decay_start": 8, "decay_steps": 16},
})


def sharding(*kinds):
    """--set for the tables a, b, c."""
    return [part for table, kind in zip("abc", kinds)
            for part in ("--set", f"tables.{table}.sharding={kind}")]


class Resume(Case):
    def test_same_bits_as_never_stopped(self):
        config = self.write(LONG)
        whole = self.train(config)
        self.train(config, "--set", "train.steps=10", "--checkpoint", "ck", ranks=2)
        for ranks, kinds in ((2, ()), (1, ()), (3, ()),
                             (3, ("row_wise", "column_wise", "data_parallel")),
                             (2, ("column_wise", "data_parallel", "table_wise"))):
            resumed = self.train(config, "--resume", "ck", *sharding(*kinds), ranks=ranks)
            self.assert_same_bits(whole, resumed, f"{ranks} ranks, {kinds}")
            self.assertEqual(resumed["last_step"], 24)
            self.assertEqual(resumed["steps"], 14)
            self.assertEqual(resumed["lifetime_ne"], whole["lifetime_ne"])
            self.assertEqual(resumed["eval"]["auc"], whole["eval"]["auc"])

    def test_every_and_keep(self):
        config = self.write(LONG)
        whole = self.train(config, "--checkpoint", "ck", "--checkpoint-every", "7")
        names = sorted(path.name for path in (self.folder / "ck").iterdir())
        steps = [f"step-{step:08}" for step in (7, 14, 21, 24)]
        self.assertEqual(names, ["latest", "rows", *steps])
        for step in steps:  # a checkpoint by its own name
            resumed = self.train(config, "--resume", f"ck/{step}")
            self.assert_same_bits(whole, resumed, step)
        self.train(config, "--checkpoint", "kept", "--checkpoint-every", "5",
                   "--checkpoint-keep", "2")
        names = sorted(path.name for path in (self.folder / "kept").iterdir())
        self.assertEqual(names, ["latest", "rows", "step-00000020", "step-00000024"])

    def test_saving_does_not_change_the_run(self):
        config = self.write(LONG, values={"train.eval_every": 5})
        self.assert_same_bits(
            self.train(config), self.train(config, "--checkpoint", "ck", "--checkpoint-every", "3"))

    def test_chain_of_resumes(self):
        config = self.write(LONG)
        for steps in (1, 15, 16, 17, 24):
            args = ["--resume", "ck"] if steps > 1 else []
            last = self.train(config, "--set", f"train.steps={steps}", "--checkpoint", "ck", *args,
                              ranks=1 + steps % 3)
        self.assert_same_bits(self.train(config), last)

    def test_epochs(self):
        config = self.write(BASE, values={"train.epochs": 2, "data.shuffle": {"window": 100}})
        whole = self.train(config)
        self.assertEqual(whole["steps"], 32)
        for steps in (5, 16):
            self.train(config, "--set", f"train.steps={steps}", "--checkpoint", f"ck{steps}")
            self.assert_same_bits(whole, self.train(config, "--resume", f"ck{steps}"), str(steps))

    def test_eval_equals_the_last_of_training(self):
        config = self.write(LONG)
        trained = self.train(config, "--checkpoint", "ck", ranks=2)
        for ranks in (1, 3):
            evaluated = self.train(config, "--resume", "ck", ranks=ranks, command="eval")
            self.assert_same_bits(trained, evaluated)
            for key in ("step", "samples", "loss", "ne", "auc", "log_loss", "calibration"):
                self.assertEqual(trained["eval"][key], evaluated["eval"][key], key)

    def test_resume_of_a_finished_run(self):
        config = self.write(LONG)
        whole = self.train(config, "--checkpoint", "ck")
        resumed = self.train(config, "--resume", "ck")
        self.assertEqual(resumed["steps"], 0)
        self.assert_same_bits(whole, resumed)

    def test_config_of_an_earlier_build(self):
        """Its config.yaml may have a key that is gone, with the value that all jobs have now."""
        config = self.write(LONG)
        whole = self.train(config)
        self.train(config, "--set", "train.steps=10", "--checkpoint", "ck", "--out", "out")
        saved = (self.folder / "out/config.yaml").read_text()
        self.assertEqual(saved.count("\nmesh:\n"), 1)
        (self.folder / "earlier.yaml").write_text(
            saved.replace("\nmesh:\n", "\nmesh:\n  sync_state: true\n"))
        steps = ["--set", "train.steps=24"]
        self.refused(2, "train", "earlier.yaml", *steps, says="mesh.sync_state: this key is gone")
        self.assert_same_bits(whole, self.train("earlier.yaml", *steps, "--resume", "ck"))

    def test_plan_of_the_checkpoint(self):
        """A job that began with a plan by hand goes on with it; --plan wins; other ranks say so."""
        config = self.write(LONG)
        self.train(config, "--set", "train.steps=1", "--out", "out", "--set",
                   "tables.c.sharding=row_wise", ranks=2)
        plan = (self.folder / "out/plan.yaml").read_text()
        rule = re.search(r"      - rank: 0\n        rows: \[0, 40\]\n(.*\n)        count: 2\n", plan)
        (self.folder / "p.yaml").write_text(
            plan[:rule.start()] + f"      - rank: 0\n        rows: [0, 3]\n{rule[1]}"
            f"      - rank: 1\n        rows: [3, 40]\n{rule[1]}" + plan[rule.end():])
        whole = self.train(config, "--plan", "p.yaml", ranks=2)
        self.train(config, "--plan", "p.yaml", "--set", "train.steps=10", "--checkpoint", "ck",
                   ranks=2)
        resumed = self.train(config, "--resume", "ck", "--out", "again", ranks=2)
        self.assert_same_bits(whole, resumed)
        self.assertEqual(whole["plan_hash"], resumed["plan_hash"])
        for args, says in ((["--plan", "out/plan.yaml"], "plan out/plan.yaml is another plan than"),
                           (["--set", "tables.c.sharding=column_wise"],
                            "tables.c.sharding is column_wise in the configuration and the plan "
                            "has row_wise")):
            result = self.run_weft("train", config, "--resume", "ck", "--ranks", 2, *args)
            self.assertIn("resume: ", result.err)
            self.assertIn(says, result.err)
        result = self.run_weft("train", config, "--resume", "ck", "--ranks", 3)
        self.assertIn("the checkpoint's plan is for 2 ranks; made a new plan for 3 ranks, with the "
                      "same 8 parts", result.err)

    def test_metrics_go_on(self):
        config = self.write(LONG)
        self.train(config, "--set", "train.steps=12", "--checkpoint", "ck", "--out", "out")
        before = (self.folder / "out/metrics.jsonl").read_text()
        self.train(config, "--resume", "ck", "--out", "out")
        after = (self.folder / "out/metrics.jsonl").read_text()
        self.assertTrue(after.startswith(before))
        self.assertEqual(json.loads(after.splitlines()[-1])["step"], 24)

    def test_other_parts_are_refused(self):
        config = self.write(LONG)
        self.train(config, "--set", "train.steps=2", "--checkpoint", "ck")
        self.refused(5, "train", config, "--resume", "ck", "--ranks", "2",
                     "--set", "numerics.parts=4", says=["numerics.parts is 8 there and 4"])
        self.train(config, "--resume", "ck", "--set", "numerics.parts=8")

    def test_other_row_draws_are_refused(self):
        config = self.write(LONG)
        self.train(config, "--set", "train.steps=2", "--set", "numerics.row_draws=1",
                   "--checkpoint", "ck")
        self.refused(5, "train", config, "--resume", "ck", "--set", "numerics.row_draws=2",
                     says=["numerics.row_draws is 1 there and 2",
                           "remove the key or set it to 1"])
        self.train(config, "--resume", "ck", "--set", "numerics.row_draws=1")

    def test_another_learning_rate_is_a_warning(self):
        config = self.write(LONG)
        whole = self.train(config)
        self.train(config, "--set", "train.steps=10", "--checkpoint", "ck")
        says = "warning: resume: the configuration differs from the checkpoint's in what decides"
        for args, differs in (((), False),
                              (("--set", "dense_optimizer.learning_rate=0.5"), True),
                              (("--set", "sparse_optimizer.learning_rate=0.5"), True)):
            result = self.run_weft("train", config, "--resume", "ck", "--summary", "s.json", *args)
            self.assertEqual(differs, f"{says} results" in result.err, str(result))
            resumed = self.summary("s.json")
            self.assertEqual((resumed["steps"], resumed["last_step"]), (14, 24))
            self.assertEqual(differs, resumed["state_hash"] != whole["state_hash"], args)

    def test_another_model_is_refused(self):
        config = self.write(LONG)
        self.train(config, "--set", "train.steps=2", "--checkpoint", "ck")
        for path, value, says in (("tables.a.embedding_dim", "16", "a"),
                                  ("tables.b.num_embeddings", "60", "tables.b"),
                                  ("model.top_mlp", "[8]", ""),
                                  ("tables.c.optimizer.type", "sgd", "tables.c"),
                                  ("dense_optimizer.type", "sgd", "")):
            args = ["--set", f"{path}={value}"]
            if path.endswith("_dim"):
                args += ["--set", "model.projection_dim=32"]
            self.refused(5, "train", config, "--resume", "ck", *args, says=says)

    def test_missing_checkpoint(self):
        config = self.write(LONG)
        for path in ("absent", "empty", "latest-only", config):
            if path in ("empty", "latest-only"):
                (self.folder / path).mkdir()
            if path == "latest-only":
                (self.folder / path / "latest").write_text("step-00000099\n")
            for command in ("train", "eval"):
                self.refused(5, command, config, "--resume", path, "--ranks", "2", says=path)

    def test_damaged_checkpoint(self):
        config = self.write(LONG)
        self.train(config, "--set", "train.steps=2", "--checkpoint", "ck", ranks=2)
        files = sorted(path.name for path in (self.folder / "ck/step-00000002").iterdir())
        self.assertIn("manifest.json", files)
        for name in files:
            for change in (lambda data: data[:-9], lambda data: data + b"x", lambda data: b"",
                           lambda data: data[:40] + bytes([data[40] ^ 1]) + data[41:], None):
                shutil.rmtree(self.folder / "bad", ignore_errors=True)
                shutil.copytree(self.folder / "ck/step-00000002", self.folder / "bad")
                path = self.folder / "bad" / name
                if change is None:
                    path.unlink()
                else:
                    path.write_bytes(change(path.read_bytes()))
                self.refused(5, "train", config, "--resume", "bad", "--ranks", "2", says=name)

    def test_unwritable_checkpoint_folder(self):
        (self.folder / "file").write_text("")
        result = self.run_weft("train", self.write(LONG), "--checkpoint", "file/ck", code=5)
        self.assertIn("file/ck", result.err)


class MpiResume(MpiCase):
    def test_between_local_and_mpi(self):
        config = self.write(LONG)
        whole = self.train(config)
        self.train(config, "--set", "train.steps=10", "--checkpoint", "local", ranks=3)
        result = self.wait(self.start(self.mpi_command(
            2, "train", config, "--resume", "local", "--checkpoint", "mpi", "--checkpoint-every",
            "4", "--summary", "s.json")))
        self.assertEqual(result.code, 0, str(result))
        self.assert_same_bits(whole, self.summary("s.json"))
        self.assert_same_bits(whole, self.train(config, "--resume", "mpi/step-00000016"))

    def test_damage_is_reported_once_by_all(self):
        config = self.write(LONG)
        self.train(config, "--checkpoint", "ck", ranks=2)
        path = next((self.folder / "ck/rows").glob("*-1-0.rows"))  # of rank 1
        path.write_bytes(path.read_bytes()[:-1])
        result = self.wait(self.start(self.mpi_command(2, "train", config, "--resume", "ck")))
        self.assertEqual(result.code, 5, str(result))
        self.assertIn(path.name, result.err)
