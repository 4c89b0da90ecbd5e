"""A resume on other data, on more of them, and of a job that is complete."""

from harness import BASE, Case, CRITEO, MPI_FLAGS, MpiCase, criteo_text, with_inverted_labels, with_values

# Read in order, so that what was trained on can be put together as one file. 20 steps of 32.
IN_ORDER = with_values(CRITEO, {"data.shuffle": {"enabled": False}})
DONE = 640
WAYS_OUT = ["name the data that the checkpoint was trained on", "--resume-data from-start",
            "--resume-data insist"]


def lines(text, first, end=None):
    return "".join(text.splitlines(keepends=True)[first:end])


class Texts(Case):
    def setUp(self):
        super().setUp()
        self.text = criteo_text(2000)
        self.write_text("train.txt", self.text)
        self.write_text("eval.txt", criteo_text(100, 9))

    def write_text(self, name, text):
        (self.folder / name).write_text(text)

    def save(self, config=None, *args, steps=20):
        """Trains some steps with a checkpoint; returns the name of the configuration."""
        name = self.write(config or IN_ORDER, values={"data.eval_path": "eval.txt"})
        self.train(name, "--set", f"train.steps={steps}", "--checkpoint", "ck", *args)
        return name


class ResumeData(Texts):
    def resume(self, config, *args, steps=30, folder="ck", code=0):
        return self.train(config, "--set", f"train.steps={steps}", "--resume", folder, *args,
                          code=code)

    def log_of_resume(self, config, *args, steps=30):
        return self.run_weft("train", config, "--set", f"train.steps={steps}", "--resume", "ck",
                             *args).err

    def test_other_data_are_refused(self):
        config = self.save(CRITEO)
        self.write_text("inverted.txt", with_inverted_labels(self.text))
        self.write_text("half.txt", lines(self.text, 0, 300))
        self.write_text("day2.txt", criteo_text(2000, 2))
        for name, says in (("inverted.txt", "'inverted.txt' has other content"),
                           ("half.txt", "'half.txt' has "), ("day2.txt", "'day2.txt' has ")):
            for steps in (["--set", "train.steps=30"], []):  # and one epoch
                self.refused(5, "train", config, "--resume", "ck", "--ranks", 2, "--out", "out",
                             "--set", f"data.path={name}", *steps, says=[says, *WAYS_OUT])
                self.assertFalse((self.folder / "out").exists())
        self.refused(5, "train", self.write(BASE), "--resume", "ck",
                     says=["data.format was criteo and is synthetic", *WAYS_OUT])

    def test_the_same_data_elsewhere_are_accepted(self):
        config = self.save(CRITEO)
        (self.folder / "moved").mkdir()
        self.write_text("moved/log", self.text)
        self.assert_same_bits(self.resume(config),
                              self.resume(config, "--set", "data.path=moved/log"))

    def test_new_data_from_their_start(self):
        """Weights and steps are kept, and the reader begins anew: tomorrow's log."""
        config = self.save()
        day2 = criteo_text(500, 2)
        self.write_text("day2.txt", day2)
        self.write_text("both.txt", lines(self.text, 0, DONE) + day2)
        whole = self.train(config, "--set", "data.path=both.txt", "--set", "train.steps=30")
        args = ["--set", "data.path=day2.txt", "--resume-data", "from-start"]
        log = self.log_of_resume(config, *args)
        self.assertIn("other data ('day2.txt' has ", log)
        self.assertIn("read from their first sample", log)
        self.assert_same_bits(whole, self.resume(config, *args))
        # A restart with the same command goes on where the checkpoint of the new data stands.
        self.resume(config, *args, "--checkpoint", "next", steps=24)
        resumed = self.resume(config, *args, folder="next")
        self.assert_same_bits(whole, resumed)
        self.assertEqual(resumed["steps"], 6)
        # By epochs: one of the new data, 16 steps.
        resumed = self.train(config, *args, "--resume", "ck")
        self.assertEqual((resumed["steps"], resumed["last_step"]), (16, 36))

    def test_insisting(self):
        config = self.save()
        day2 = criteo_text(2000, 2)
        self.write_text("day2.txt", day2)
        self.write_text("both.txt", lines(self.text, 0, DONE) + lines(day2, DONE))
        whole = self.train(config, "--set", "data.path=both.txt", "--set", "train.steps=30")
        args = ["--set", "data.path=day2.txt", "--resume-data", "insist"]
        self.assertIn("warning: resume: other data, as insisted on ('day2.txt' has ",
                      self.log_of_resume(config, *args))
        self.assert_same_bits(whole, self.resume(config, *args))

    def test_what_would_train_nothing_is_an_error(self):
        config = self.save()
        self.write_text("half.txt", lines(self.text, 0, 300))
        for steps in (["--set", "train.steps=30"], []):
            self.refused(3, "train", config, "--resume", "ck", "--set", "data.path=half.txt",
                         "--resume-data", "insist", *steps,
                         says=["at sample 640 of epoch 0", "half.txt has 300", "from-start"])
        self.write_text("exact.txt", lines(criteo_text(DONE, 2), 0))
        self.refused(3, "train", config, "--resume", "ck", "--set", "data.path=exact.txt",
                     "--resume-data", "insist", "--checkpoint", "other",
                     says=["trained nothing", "sample 640 of epoch 0"])
        self.assertEqual(list((self.folder / "other").glob("step-*")), [])
        for mode in ("same", "insist"):
            self.refused(5, "train", config, "--resume", "ck", "--set", "data.max_samples=600",
                         "--resume-data", mode, says=["600 samples"])

    def test_appended_files_are_trained_on(self):
        self.write_text("first.txt", lines(self.text, 0, 700))
        self.write_text("second.txt", lines(self.text, 700, 800))
        self.write_text("third.txt", lines(self.text, 800))
        for shuffle in ({"enabled": False}, {"window": 64}):
            config = with_values(IN_ORDER, {"data.shuffle": shuffle})
            name = self.save(config, "--set", "data.path=first.txt")
            whole = self.train(name, "--set", "train.steps=30")
            args = ["--set", "data.path=[first.txt,second.txt,third.txt]"]
            log = self.log_of_resume(name, *args)
            self.assertIn("2 files have been appended (the checkpoint knows 1)", log)
            self.assertIn("reading goes on after them, at sample 640", log)
            self.assert_same_bits(whole, self.resume(name, *args), str(shuffle))
            # In two pieces, by a checkpoint that knows two of the files.
            two = ["--set", "data.path=[first.txt,second.txt]", "--checkpoint", "next"]
            self.resume(name, *two, steps=21)
            self.assert_same_bits(whole, self.resume(name, *args, folder="next"), str(shuffle))
            # Not with another file in front, nor with one of them gone.
            for paths in ("[second.txt,first.txt]", "second.txt"):
                self.refused(5, "train", name, "--resume", "next", "--set", f"data.path={paths}",
                             "--set", "train.steps=30", says=WAYS_OUT)
            for folder in ("ck", "next"):
                for path in sorted((self.folder / folder).glob("**/*"), reverse=True):
                    path.rmdir() if path.is_dir() else path.unlink()

    def test_appended_files_that_change_the_order_are_refused(self):
        self.write_text("more.txt", criteo_text(100, 3))
        both = ["--set", "data.path=[train.txt,more.txt]"]
        config = self.save(CRITEO)
        self.refused(5, "train", config, "--resume", "ck", "--set", "train.steps=30", *both,
                     says=["1 file has been appended", "640 samples already consumed changes",
                           "data.shuffle mixes 65,536 samples at a time", *WAYS_OUT])
        # At the end of the epoch nothing of it is left to be mixed.
        self.train(config, "--set", "train.steps=63", "--checkpoint", "end")
        log = self.run_weft("train", config, "--set", "train.steps=70", "--resume", "end", *both)
        self.assertIn("epoch 0 was complete, and epoch 1 reads all of it", log.err)
        self.refused(5, "train", config, "--resume", "end", *both, says=WAYS_OUT)  # one epoch only

    def test_appended_files_and_a_fraction_for_evaluation(self):
        """The part for evaluation moves behind the new samples; what was consumed stays in front."""
        source = self.write(CRITEO, name="source.json")
        for name, text in (("a", lines(self.text, 0, 1000)), ("b", lines(self.text, 1000))):
            self.write_text("train.txt", text)
            self.run_weft("data", "convert", source, "--out", f"{name}.weft", "--quiet")
        config = self.write(CRITEO, values={
            "data": {"format": "weft", "path": ["a.weft", "b.weft"], "eval_fraction": 0.1,
                     "shuffle": {"window": 64}}})
        whole = self.train(config, "--set", "train.steps=30")
        self.train(config, "--set", "train.steps=20", "--set", "data.path=a.weft", "--checkpoint",
                   "ck")
        log = self.log_of_resume(config)
        self.assertIn("1 file has been appended", log)
        self.assertIn("The evaluation part (data.eval_fraction) is another one", log)
        self.assert_same_bits(whole, self.resume(config))
        # Mixed all together, more samples are another order.
        self.train(config, "--set", "train.steps=20", "--set", "data.path=a.weft", "--set",
                   "data.shuffle.window=0", "--checkpoint", "all")
        self.refused(5, "train", config, "--resume", "all", "--set", "data.shuffle.window=0",
                     "--set", "train.steps=30",
                     says=["mixed 900 samples at a time and now 1,800", *WAYS_OUT])

    def test_complete_jobs_say_so(self):
        config = self.save()
        complete = "the job is complete: train.steps is 20 and the checkpoint is of step 20"
        result = self.run_weft("train", config, "--resume", "ck", "--set", "train.steps=20")
        self.assertIn(complete, result.err)
        # Which data there are now does not matter, and they do not become those of the checkpoint.
        self.write_text("day2.txt", criteo_text(2000, 2))
        self.run_weft("train", config, "--resume", "ck", "--set", "train.steps=20", "--checkpoint",
                      "ck", "--set", "data.path=day2.txt")
        self.resume(config)
        # By epochs: the number of samples is known, or is found out.
        for batch in (32, 40):
            for epochs in (1, 2):
                args = ["--set", f"batch_size={batch}", "--set", f"train.epochs={epochs}"]
                whole = self.train(config, *args, "--checkpoint", f"end-{batch}-{epochs}")
                result = self.run_weft("train", config, *args, "--summary", "s.json", "--resume",
                                       f"end-{batch}-{epochs}")
                self.assertIn(f"the job is complete: train.epochs is {epochs}", result.err)
                self.assertEqual(self.summary("s.json")["steps"], 0)
                self.assert_same_bits(whole, self.summary("s.json"))

    def test_evaluation_takes_any_data(self):
        config = self.save()
        self.write_text("day2.txt", criteo_text(150, 2))
        for path in ("data.eval_path", "data.path"):
            evaluated = self.train(config, "--resume", "ck", "--set", f"{path}=day2.txt",
                                   command="eval")
            self.assertEqual(evaluated["eval"]["samples"], 150 if "eval" in path else 100)

    def test_usage(self):
        config = self.save()
        self.run_weft("train", config, "--resume-data", "insist", code=2)
        self.run_weft("train", config, "--resume", "ck", "--resume-data", "other", code=2)
        self.run_weft("eval", config, "--resume", "ck", "--resume-data", "same", code=2)


class MpiResumeData(Texts, MpiCase):
    def test_a_rank_with_other_data_is_named(self):
        """Not the data that most ranks and the checkpoint have."""
        self.save()
        (self.folder / "elsewhere").mkdir()
        self.write_text("elsewhere/train.txt", with_inverted_labels(self.text))
        self.write_text("elsewhere/eval.txt", (self.folder / "eval.txt").read_text())
        train = [self.weft, "train", self.folder / "job.yaml", "--resume", self.folder / "ck",
                 "--set", "train.steps=30"]
        result = self.wait(self.start([self.mpirun, *MPI_FLAGS, "-n", "2", *train, ":", "-n", "1",
                                       "-wdir", self.folder / "elsewhere", *train]))
        self.assertEqual(result.code, 4, str(result))
        self.assertIn("rank 2 differs from rank 0 in its data", result.err)

    def test_other_data_are_refused_by_all(self):
        config = self.save()
        self.write_text("train.txt", with_inverted_labels(self.text))
        result = self.wait(self.start(self.mpi_command(
            2, "train", config, "--resume", "ck", "--set", "train.steps=30")))
        self.assertEqual(result.code, 5, str(result))
        self.assertIn("'train.txt' has other content", result.err)
