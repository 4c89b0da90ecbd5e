"""Folders of checkpoints: lines, jobs, locks, and starting again without a person."""

import signal

from harness import BASE, Case, MpiCase, with_values

JOB = with_values(BASE, {"train.epochs": 9, "train.steps": 20})
ENDLESS = with_values(BASE, {"train.steps": 10**9, "train.log_every": 1})


class FolderCase(Case):
    def steps(self, folder="ck"):
        """The names below a folder of checkpoints; all others must be `latest` and `rows`."""
        names = sorted(path.name for path in (self.folder / folder).iterdir())
        self.assertIn("latest", names)
        names.remove("latest")
        names.remove("rows")
        for name in names:
            self.assertTrue(name.startswith("step-") and not name.endswith(".tmp"), names)
        return [name.removeprefix("step-").lstrip("0") for name in names]

    def start_endless(self, command, *args):
        """A job that writes checkpoints until it is ended; returns when there is one."""
        process = self.start([*command, "train", self.write(ENDLESS), "--checkpoint", "ck",
                              "--checkpoint-every", 5, "--checkpoint-keep", 2, *args])
        self.wait_for((self.folder / "ck/latest").exists, process, "a checkpoint")
        return process


class Checkpoints(FolderCase):
    def test_going_back_and_on(self):
        config = self.write(JOB)
        self.train(config, "--checkpoint", "ck", "--checkpoint-every", 5, "--checkpoint-keep", 3)
        self.assertEqual(self.steps(), ["10", "15", "20"])
        result = self.run_weft("train", config, "--set", "train.steps=14", "--resume",
                               "ck/step-00000010", "--checkpoint", "ck", "--checkpoint-every", 1,
                               "--checkpoint-keep", 3)
        self.assertIn("leaves behind step-00000015, step-00000020 of 'ck'", result.err)
        self.assertEqual(self.steps(), ["12", "13", "14"])
        whole = self.train(config)
        self.assert_same_bits(whole, self.train(config, "--resume", "ck"))

    def test_a_new_job_in_a_used_folder(self):
        config = self.write(JOB)
        self.train(config, "--checkpoint", "ck", "--checkpoint-every", 5)
        self.refused(5, "train", config, "--set", "seed=4", "--set", "train.steps=4",
                     "--checkpoint", "ck", "--checkpoint-keep", 2, "--ranks", 2,
                     says=["'ck' has 4 checkpoints of another training, the last of step 20",
                           "--resume auto", "another --checkpoint directory"])
        self.assertEqual(self.steps(), ["5", "10", "15", "20"])
        # One that goes on from elsewhere may use it; the others stay.
        self.train(config, "--set", "seed=4", "--set", "train.steps=2", "--checkpoint", "other")
        self.train(config, "--set", "seed=4", "--set", "train.steps=8", "--resume", "other",
                   "--checkpoint", "ck", "--checkpoint-every", 2, "--checkpoint-keep", 2)
        self.assertEqual(self.steps(), ["5", "6", "8", "10", "15", "20"])

    def test_the_same_command_starts_and_goes_on(self):
        """As the restart script of docs/cluster.md."""
        config = self.write(JOB)
        whole = self.train(config)
        for steps, ranks in ((7, 1), (16, 2), (20, 3)):
            last = self.train(config, "--set", f"train.steps={steps}", "--resume", "auto",
                              "--checkpoint", "ck", "--checkpoint-every", 3, ranks=ranks)
            self.assertEqual(last["last_step"], steps)
        self.assertEqual(last["steps"], 4)
        self.assert_same_bits(whole, last)
        before = self.steps()
        (self.folder / "ck/latest").unlink()  # a hint: save numbers decide
        done = self.train(config, "--resume", "auto", "--checkpoint", "ck/")
        self.assertEqual(done["steps"], 0)
        self.assert_same_bits(whole, done)
        (self.folder / "ck/latest").touch()
        self.assertEqual(self.steps(), before, "nothing was trained, so nothing is saved again")

    def test_what_needs_a_folder_says_so(self):
        config = self.write(JOB)
        self.refused(2, "train", config, "--checkpoint-keep", 2,
                     says="--checkpoint-keep needs --checkpoint DIR")
        for command in ("train", "eval"):
            self.refused(2, command, config, "--resume", "auto", says="--checkpoint DIR")

    def test_one_writer(self):
        first = self.start_endless([self.weft])
        soon = ["--set", "train.timeout_s=5"]  # auto waits so long for the first to end
        for args in (["--resume", "auto", *soon], ["--resume", "ck"], []):
            self.refused(5, "train", "job.yaml", "--set", "seed=4", "--checkpoint", "ck",
                         "--ranks", 2, *args,
                         says=["another job writes checkpoints to 'ck'", f"process {first.pid} on",
                               "no file has to be removed"])
        first.send_signal(signal.SIGTERM)
        result = self.wait(first)
        self.assertEqual(result.code, 130, str(result))
        self.assertEqual(len(self.steps()), 2)
        self.train("job.yaml", "--resume", "ck", "--set",
                   f"train.steps={int(self.steps()[-1]) + 2}")

    def test_auto_waits_for_the_run_before(self):
        first = self.start_endless([self.weft])
        second = self.start([self.weft, "train", "job.yaml", "--checkpoint", "ck", "--resume",
                             "auto", "--set", "train.steps=1"])
        self.wait_for(lambda: "waiting for up to 300 s" in self.log_of(second), second, "a wait")
        first.send_signal(signal.SIGTERM)
        self.wait(first)
        result = self.wait(second)
        self.assertEqual(result.code, 0, str(result))

    def test_a_lost_lock_ends_the_job_at_once(self):
        first = self.start_endless([self.weft], "--checkpoint-max-age", 10**9)
        (self.folder / "ck/lock").unlink()
        result = self.wait(first)
        self.assertEqual(result.code, 5, str(result))
        self.assertIn("is no longer this job's", result.err)
        self.assertNotIn("tries again at step", result.err)

    def test_killed_and_started_again(self):
        """Whatever a kill leaves, the same command goes on, and no file has to be removed."""
        for _ in range(4):
            process = self.start_endless([self.weft], "--resume", "auto")
            process.kill()
            self.wait(process)
        last = int((self.folder / "ck/latest").read_text().removeprefix("step-"))
        more = ["--set", f"train.steps={last + 12}"]
        resumed = self.train("job.yaml", "--resume", "auto", "--checkpoint", "ck", *more)
        self.assert_same_bits(self.train("job.yaml", *more), resumed)
        self.steps()


class MpiCheckpoints(FolderCase, MpiCase):
    def test_one_writer(self):
        first = self.start_endless(self.mpi_command(2))
        result = self.wait(self.start(self.mpi_command(
            2, "train", "job.yaml", "--resume", "auto", "--checkpoint", "ck", "--set",
            "train.timeout_s=5")))
        self.assertEqual(result.code, 5, str(result))
        self.assertIn("another job writes checkpoints to 'ck'", result.err)
        first.kill()  # the launcher; its ranks end, and their lock with them
        self.wait(first)
        self.run_killed_again()

    def run_killed_again(self):
        last = int((self.folder / "ck/latest").read_text().removeprefix("step-"))
        command = self.mpi_command(2, "train", "job.yaml", "--resume", "auto", "--checkpoint", "ck",
                                   "--set", f"train.steps={last + 12}")
        result = self.wait(self.start(command))
        for _ in range(50):  # until the last of the killed job's ranks is gone
            if "another job writes" not in result.err:
                break
            result = self.wait(self.start(command))
        self.assertEqual(result.code, 0, str(result))
