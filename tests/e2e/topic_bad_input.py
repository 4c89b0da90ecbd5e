"""Input that must end the program with the right exit code and one clear message."""

import gzip
import os
import random
import unittest

from harness import BASE, CRITEO, Case, criteo_line, criteo_text, with_values, write_movielens


class BadUsage(Case):
    def test_commands_and_flags(self):
        config = self.write()
        for args, says in (
            ([], "subcommand"),
            (["trian", config], "trian"),
            (["train"], "config"),
            (["train", config, "--frobnicate"], "--frobnicate"),
            (["train", config, "--ranks", "0"], "--ranks"),
            (["train", config, "--ranks", "-2"], "--ranks"),
            (["train", config, "--ranks", "two"], "--ranks"),
            (["train", config, "--threads", "0"], "--threads"),
            (["train", config, config], config),
            (["train", config, "--checkpoint-every", "5"], "--checkpoint-every needs --checkpoint"),
            (["train", config, "--checkpoint", "ck", "--checkpoint-every", "-1"],
             "--checkpoint-every"),
            (["train", config, "--resume", ""], "--resume"),
            (["train", config, "--summary", ""], "--summary"),
            (["train", config, "--set", "train.steps"], "path=value"),
            (["eval", config, "--checkpoint", "ck"], "--checkpoint"),
            (["train", "absent.yaml"], "absent.yaml"),
            (["train", "."], "directory"),
            (["train", config, "--plan", "absent.yaml"], "absent.yaml"),
            (["train", config, "--plan", "."], "plan ."),
            (["train", config, "--plan", config], "unknown key"),
        ):
            self.refused(2, *args, says=says)

    def test_version_and_help(self):
        self.assertRegex(self.run_weft("--version").out, r"^weft \d+\.\d+\.\d+\n$")
        for command in ((), ("train",), ("eval",), ("config",), ("data",), ("data", "stats")):
            self.assertIn("--help", self.run_weft(*command, "--help").out)

    def test_outputs_that_cannot_be_written(self):
        """Found before the training, not after it."""
        config = self.write()
        (self.folder / "file").write_text("")
        (self.folder / "folder").mkdir()
        for code, args in ((1, ["--summary", "absent/s.json"]), (1, ["--summary", "folder"]),
                           (1, ["--out", "file"]), (1, ["--out", "file/out"]),
                           (5, ["--checkpoint", "file"]), (5, ["--checkpoint", "file/ck"])):
            result = self.run_weft("train", config, *args, code=code)
            self.assertIn(args[1], result.err)
            self.assertNotIn("step ", result.err.replace("--", ""), "trained first")

    @unittest.skipIf(os.geteuid() == 0, "root may write everywhere")
    def test_no_permission(self):
        config = self.write()
        closed = self.folder / "closed"
        closed.mkdir(mode=0o500)
        for code, args in ((1, ["--summary", "closed/s.json"]), (1, ["--out", "closed/out"]),
                           (5, ["--checkpoint", "closed/ck"])):
            self.assertIn("closed", self.run_weft("train", config, *args, code=code).err)

    def test_existing_summary_survives_a_failed_start(self):
        config = self.write()
        (self.folder / "s.json").write_text("kept")
        self.refused(2, "train", config, "--summary", "s.json", "--set", "train.steps=x")
        self.refused(1, "train", config, "--summary", "s.json", "--out", "s.json/out")
        self.assertEqual((self.folder / "s.json").read_text(), "kept")


class BadConfig(Case):
    def refuses(self, values, says, *args):
        config = self.write(with_values(BASE, values))
        for command in ("train", "eval", "config"):
            self.refused(2, command, config, *(args if command != "config" else ()), says=says)

    def test_place_of_an_error(self):
        (self.folder / "job.yaml").write_text("version: 1\nbatch_size: 64\ntrain:\n  stepps: 3\n")
        self.refused(2, "train", "job.yaml", says=["job.yaml:4:", "did you mean 'steps'"])

    def test_not_yaml(self):
        for text in ("version: 1\n  x: [", "\t- :", "version: 1\n---\nversion: 1\n", "[1, 2]", "",
                     "\0\0\0", "version: 1\nversion: 1\n", "just text", "\ufffe\uffff"):
            (self.folder / "job.yaml").write_text(text)
            self.refused(2, "train", "job.yaml", says="job.yaml")
        (self.folder / "job.yaml").write_bytes(b"version: 1\nseed: \xff\xfe\n")
        self.refused(2, "train", "job.yaml", says="job.yaml")

    def test_unknown_keys(self):
        for path, says in (("bach_size", "did you mean 'batch_size'"),
                           ("train.epoch", "did you mean 'epochs'"),
                           ("tables.0.embeding_dim", "did you mean 'embedding_dim'"),
                           ("data.synthetic.columns.0.zip", "did you mean 'zipf'"),
                           ("model.banana", "unknown key")):
            self.refuses({path: 1}, says)

    def test_wrong_types_and_ranges(self):
        for path, value in (
            ("batch_size", "many"), ("batch_size", 0), ("batch_size", -4), ("batch_size", 1.5),
            ("batch_size", 10**12), ("batch_size", 10**30), ("batch_size", [1]),
            ("train.steps", -1), ("train.epochs", 0), ("train.overlap", "perhaps"),
            ("train.log_every", 0), ("train.timeout_s", 0),
            ("tables.0.embedding_dim", 0), ("tables.0.embedding_dim", 10**6),
            ("tables.0.num_embeddings", 0), ("tables.0.num_embeddings", 10**15),
            ("tables.0.dtype", "fp8"), ("tables.0.sharding", "diagonal"),
            ("tables.0.optimizer", {"type": "adamw"}),
            ("model.type", "transformer"), ("model.top_mlp", [0]), ("model.top_mlp", 16),
            ("sparse_optimizer.learning_rate", float("nan")),
            ("sparse_optimizer.learning_rate", float("inf")),
            ("dense_optimizer.learning_rate", -1), ("dense_optimizer.beta1", 1),
            ("data.format", "parquet"), ("data.synthetic.base_rate", 1),
            ("data.synthetic.columns.0.missing", 2), ("numerics.parts", -1), ("seed", -1),
            ("version", 2), ("tasks", [{"name": "click", "weight": 0}]),
        ):
            self.refuses({path: value}, path.split(".")[-1])

    def test_what_must_agree(self):
        for values, says in (
            ({"sparse_features.0.table": "absent"}, ["feature", "absent"]),
            ({"sparse_features.0.column": "absent"}, ["absent"]),
            ({"dense_features.0.column": "absent"}, ["absent"]),
            ({"tables.0.embedding_dim": 16}, ["table a has 16"]),
            ({"model.bottom_mlp": [16, 8]}, ["bottom_mlp"]),
            ({"tables.1.name": "a"}, ["tables", "a"]),
            ({"sparse_features.1.name": "a"}, ["sparse_features", "a"]),
            ({"sparse_features.2.pooling": "none"}, ["c", "target"]),
            ({"sparse_features.2.weighted": True}, ["weighted"]),
            ({"sparse_optimizer.weight_decay": 0.1}, ["weight_decay"]),
            ({"tasks": [{"name": "x", "column": "absent"}]}, ["absent"]),
        ):
            self.refuses(values, says)

    def test_parts_and_ranks(self):
        config = self.write(BASE, values={"numerics.parts": 2})
        self.refused(2, "train", config, "--ranks", "3",
                     says=["numerics.parts", "2 parts cannot be spread over 3 ranks"])

    def test_no_evaluation_data(self):
        config = self.write(BASE, values={"data.synthetic.eval_samples": 0})
        self.refused(2, "eval", config, says="no evaluation data")
        self.assertIsNone(self.train(config)["eval"])

    def test_plan_of_another_job(self):
        config = self.write()
        self.train(config, "--out", "out", ranks=2)
        plan = ["--plan", "out/plan.yaml"]
        self.refused(2, "train", config, *plan, "--ranks", "3", says="2 ranks")
        other = self.write(BASE, "other.yaml", {"tables.0.name": "z", "sparse_features.0.table": "z"})
        self.refused(2, "train", other, *plan, "--ranks", "2", says=["out/plan.yaml", "'z'"])
        text = (self.folder / "out/plan.yaml").read_text()
        (self.folder / "out/plan.yaml").write_text(text.replace("rows: [0, ", "rows: [1, "))
        self.refused(2, "train", config, *plan, "--ranks", "2",
                     says=["out/plan.yaml: the plan of table", "held by no shard"])
        (self.folder / "out/plan.yaml").write_text(text + "#" * (16 << 20))
        self.refused(2, "train", config, *plan, "--ranks", "2", says="longer than 16 MiB")

    def test_table_that_does_not_fit(self):
        config = self.write(BASE, values={"tables.0.num_embeddings": 10**12})
        self.refused(1, "train", config, "--ranks", "2", says=["memory", "largest tables there: a "])


class BadData(Case):
    def test_names_what_would_read_a_file(self):
        for name, begin, says in (("x.parquet", b"PAR1\x15\x04", "Parquet"),
                                  ("x.gz", b"\x1f\x8b\x08", "data.format: criteo"),
                                  ("x.tsv", self.good.encode(), "data.format: criteo"),
                                  ("ratings.csv", b"userId,movieId\n", "data.format: movielens"),
                                  ("x", b"whatever it is", "weft data convert")):
            (self.folder / name).write_bytes(begin)
            config = self.write(CRITEO, "other.yaml", {"data.format": "weft", "data.path": name,
                                                       "data.eval_path": []})
            self.refused(3, "train", config, says=(name, "not a weft file", says))

    def setUp(self):
        super().setUp()
        self.rng = random.Random(7)
        self.config = self.write(CRITEO)
        self.good = criteo_text(50)

    def refuses(self, text, says, name="train.txt", **values):
        """`text` of the training data is refused whatever the ranks, naming all of `says`."""
        (self.folder / name).write_bytes(text if isinstance(text, bytes) else text.encode())
        config = self.write(CRITEO, "bad.yaml", {"data.path": name, "data.eval_path": [], **values})
        for ranks in (1, 3):
            self.refused(3, "train", config, "--ranks", ranks, says=[name, *says])
        self.refused(3, "data", "stats", config, says=[name, *says])
        self.refused(3, "data", "convert", config, "--out", "copy.weft", says=[name, *says])

    def test_field_count(self):
        fields = criteo_line(self.rng).split("\t")
        self.refuses(self.good + "\t".join(fields[:-1]) + "\n", ["51", "39"])
        self.refuses(self.good + "\t".join([*fields, "0"]) + "\n", ["51", "41"])
        self.refuses(self.good + "\n" + self.good, ["51"])

    def test_bad_fields(self):
        fields = criteo_line(self.rng, label=1).split("\t")
        for index, value, column in ((14, "zz00beef", "C1"), (39, "123456789", "C26"),
                                     (14, "0x000001", "C1"), (1, "1.5", "I1"), (13, "x", "I13"),
                                     (2, "nan", "I2"), (0, "2", "label"), (0, "-1", "label"),
                                     (0, "", "label"), (0, "0.5", "label")):
            bad = list(fields)
            bad[index] = value
            self.refuses(self.good + "\t".join(bad) + "\n", ["51", column])

    def test_binary_and_long_lines(self):
        self.refuses(self.good.encode() + b"\0\1\2\n", ["51"])
        self.refuses(self.good + "1\t" * 10000 + "\n", ["51"])
        self.refuses(bytes(self.rng.randrange(256) for _ in range(3000)), [])

    def test_compressed(self):
        packed = gzip.compress(self.good.encode())
        self.refuses(packed[:len(packed) // 2], [], name="cut.gz")
        self.refuses(packed[:-4], [], name="trailer.gz")
        self.refuses(packed[:100] + bytes(9) + packed[109:], [], name="hit.gz")
        self.refuses(self.good, [], name="plain.gz")
        self.refuses(self.good, [], name="plain.zst")
        (self.folder / "train.txt").write_bytes(packed)  # recognised by content
        self.assertEqual(self.train(self.config)["samples"], 50)

    def test_no_data(self):
        self.refuses("", [])
        for path in ("absent.txt", "absent*.txt", ".", ["train.txt", "absent.txt"], "no/such/f"):
            config = self.write(CRITEO, values={"data.path": path})
            (self.folder / "train.txt").write_text(self.good)
            named = path if isinstance(path, str) else path[-1]
            self.refused(3, "train", config, "--ranks", "2", says=named)
            self.refused(3, "train", self.write(CRITEO, values={"data.eval_path": path}), says=named)

    def test_links_that_lead_nowhere(self):
        os.symlink("loop.txt", self.folder / "loop.txt")
        os.symlink("absent.txt", self.folder / "dangling.txt")
        for name in ("loop.txt", "dangling.txt"):
            self.refused(3, "train", self.write(CRITEO, values={"data.path": name}), says=name)

    def test_error_late_in_a_run(self):
        """A bad line far behind the first steps ends all ranks in order."""
        text = criteo_text(3000) + "bad line\n"
        (self.folder / "train.txt").write_text(text)
        config = self.write(CRITEO, values={"data.eval_path": [], "data.shuffle": {"window": 16}})
        for ranks in (1, 3):
            result = self.run_weft("train", config, "--ranks", ranks, "--summary", "s.json", code=3)
            self.assertIn("train.txt", result.err)
            self.assertIn("3001", result.err)
            self.assertFalse((self.folder / "s.json").exists())

    def test_bad_evaluation_data(self):
        (self.folder / "train.txt").write_text(self.good)
        (self.folder / "eval.txt").write_text(self.good + "bad line\n")
        config = self.write(CRITEO, values={"data.eval_path": "eval.txt"})
        result = self.run_weft("train", config, "--ranks", "2", code=3)
        self.assertIn("eval.txt", result.err)

    def test_identity_out_of_range(self):
        for change in ({"tables.0.num_embeddings": 10}, {"data.synthetic.columns.0.cardinality": 900}):
            config = self.write(BASE, values=change)
            for ranks in (1, 3):
                self.refused(3, "train", config, "--ranks", ranks,
                             says=["feature 'a'", "table 'a'", "identity", "sample "])

    def test_movielens(self):
        write_movielens(self.folder / "ml")
        job = self.write(CRITEO, values={
            "data": {"format": "movielens", "path": "ml"},
            "dense_features": [{"name": "click_rate"}],
            "sparse_features": [{"name": "film"}],
            "tables": [{"name": "film", "num_embeddings": 64, "embedding_dim": 4}],
        })
        self.train(job)
        ratings = self.folder / "ml/ratings.csv"
        good = ratings.read_text()
        for line, says in (("1,2,3.5", "602"), ("1,2,x,1000000000", "602"),
                           ("1,2,9,1000000000", "602"), ("-,2,3,1000000000", "602"),
                           ("1,2,3,99999999999999999999999", "602"), ("1,999999,3,1000000000", "")):
            ratings.write_text(good + line + "\n")
            self.refused(3, "train", job, says=["ratings.csv" if says else "", says])
        ratings.write_text("")
        self.refused(3, "train", job, says="ratings.csv")
        ratings.unlink()
        self.refused(3, "train", job, says="ratings.csv")
        self.refused(3, "train", job, "--set", "data.path=absent", says="absent")

    def test_damaged_weft_file(self):
        job = self.write()
        self.run_weft("data", "generate", job, "--out", "log.weft")
        data = (self.folder / "log.weft").read_bytes()
        config = self.write(BASE, "weft.yaml", {"data": {"format": "weft", "path": "bad.weft"}})
        for bad in (data[:-1], data[:100], b"", data + b"x", b"no weft file at all" * 100,
                    *(data[:i] + bytes([data[i] ^ 4]) + data[i + 1:]
                      for i in range(8, len(data), len(data) // 15))):
            (self.folder / "bad.weft").write_bytes(bad)
            self.refused(3, "train", config, "--ranks", "2", says="bad.weft")
