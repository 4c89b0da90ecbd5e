"""Stop requests, killed ranks and ranks that differ."""

import json
import os
import pathlib
import shutil
import signal
import time

from harness import (BASE, Case, CRITEO, MPI_FLAGS, MpiCase, criteo_text, with_inverted_labels,
                     with_values)

# Never ends by itself; the first window of figures says that training is under way.
ENDLESS = with_values(BASE, {"train.steps": 10**9, "train.log_every": 1})


class StopCase(Case):
    def metrics(self):
        path = self.folder / "out/metrics.jsonl"
        return path.read_text() if path.exists() else ""

    def wait_for_steps(self, process):
        self.wait_for(lambda: self.metrics().count("\n") >= 3, process, "training")

    def check_stopped(self, checkpoint=True):
        """The summary of a stopped run; resuming it ends where one run to that step does."""
        summary = self.summary("s.json")
        self.assertTrue(summary["stopped"])
        self.assertGreater(summary["steps"], 0)
        self.assertEqual(summary, json.loads((self.folder / "out/summary.json").read_text()))
        if checkpoint:
            step = summary["last_step"]
            self.assertEqual((self.folder / "ck/latest").read_text(), f"step-{step:08}\n")
            more = ["--set", f"train.steps={step + 5}"]
            self.assert_same_bits(self.train("job.yaml", *more),
                                  self.train("job.yaml", *more, "--resume", "ck", ranks=3))
        return summary


class Stop(StopCase):
    def stop(self, number, *args):
        config = self.write(ENDLESS)
        process = self.start([self.weft, "train", config, "--ranks", 2, "--summary", "s.json",
                              "--out", "out", *args])
        self.wait_for_steps(process)
        process.send_signal(number)
        result = self.wait(process)
        self.assertEqual(result.code, 130, str(result))
        self.assertIn(f"signal {int(number)}: stopping after this step", result.err)

    def test_sigint(self):
        self.stop(signal.SIGINT, "--checkpoint", "ck")
        self.check_stopped()

    def test_sigterm(self):
        self.stop(signal.SIGTERM, "--checkpoint", "ck", "--checkpoint-every", "1000000")
        self.check_stopped()

    def test_sigusr1_without_checkpoint(self):
        self.stop(signal.SIGUSR1)
        self.check_stopped(checkpoint=False)
        self.assertFalse((self.folder / "ck").exists())

    def test_stopped_twice(self):
        """A stopped run that is resumed and stopped again is still the same run."""
        self.stop(signal.SIGTERM, "--checkpoint", "ck")
        (self.folder / "out/metrics.jsonl").unlink()
        self.stop(signal.SIGINT, "--checkpoint", "ck", "--resume", "ck")
        self.check_stopped()

    def test_between_syncs(self):
        """Replicas are apart: the stop waits, and says so."""
        config = self.write(ENDLESS, values={"mesh": {"groups": 2, "sync_every": 7}})
        process = self.start([self.weft, "train", config, "--ranks", 2, "--summary", "s.json",
                              "--out", "out"])
        self.wait_for_steps(process)
        process.send_signal(signal.SIGTERM)
        result = self.wait(process)
        self.assertEqual(result.code, 130, str(result))
        self.assertIn("stopping at the next sync, a step that is a multiple of 7", result.err)
        self.assertEqual(self.summary("s.json")["last_step"] % 7, 0)

    def start_between_syncs(self, every):
        """A job that a stop request ends at the next of its rare syncs."""
        config = self.write(ENDLESS, values={"mesh": {"groups": 2, "sync_every": every}})
        process = self.start([self.weft, "train", config, "--ranks", 2, "--summary", "s.json",
                              "--out", "out", "--checkpoint", "ck"])
        self.wait_for_steps(process)
        return process

    def steps_of(self, seconds):
        """About how many steps the job of start_between_syncs makes in that time."""
        values = {"mesh": {"groups": 2, "sync_every": 300}, "train.steps": 300}
        short = self.train(self.write(ENDLESS, values=values), ranks=2)
        return int(seconds * short["steps"] / short["train_s"])

    def wait_for_log(self, process, text):
        self.wait_for(lambda: text in self.log_of(process), process, text)

    def test_second_sigint_ends_at_once(self):
        process = self.start_between_syncs(10**9)
        process.send_signal(signal.SIGINT)
        self.wait_for_log(process, "another SIGINT after a second ends at once")
        time.sleep(1.1)
        process.send_signal(signal.SIGINT)
        result = self.wait(process)
        self.assertEqual(result.code, 130, str(result))
        self.assertIn("ending at once, without a checkpoint", result.err)
        self.assertFalse((self.folder / "s.json").exists())
        self.assertFalse((self.folder / "out/summary.json").exists())
        self.assertFalse((self.folder / "ck/latest").exists())

    def test_double_signals_save(self):
        """GNU timeout signals a process and its group: the same signal twice within 10 ms."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGUSR1):
            process = self.start_between_syncs(self.steps_of(1))
            process.send_signal(number)
            self.wait_for_log(process, f"signal {int(number)}: stopping at the next sync")
            process.send_signal(number)
            result = self.wait(process)
            self.assertEqual(result.code, 130, str(result))
            self.assertTrue(self.summary("s.json")["stopped"])
            step = self.summary("s.json")["last_step"]
            self.assertEqual((self.folder / "ck/latest").read_text(), f"step-{step:08}\n")
            for name in ("out", "ck"):
                shutil.rmtree(self.folder / name)
            (self.folder / "s.json").unlink()

    def test_later_sigterm_saves(self):
        """No SIGTERM but the first changes anything, and after SIGINT one does not either."""
        for first in (signal.SIGTERM, signal.SIGINT):
            process = self.start_between_syncs(self.steps_of(3))
            process.send_signal(first)
            self.wait_for_log(process, "stopping at the next sync")
            time.sleep(1.1)
            process.send_signal(signal.SIGTERM)
            result = self.wait(process)
            self.assertEqual(result.code, 130, str(result))
            step = self.summary("s.json")["last_step"]
            self.assertEqual((self.folder / "ck/latest").read_text(), f"step-{step:08}\n")
            for name in ("out", "ck"):
                shutil.rmtree(self.folder / name)

    def test_early_sigusr1(self):
        """A stop request that comes while the configuration is read is honoured after it."""
        config = self.write(ENDLESS)
        text = (self.folder / config).read_text()
        os.mkfifo(self.folder / "fifo.yaml")
        process = self.start([self.weft, "train", "fifo.yaml", "--summary", "s.json",
                              "--checkpoint", "ck"])
        with open(self.folder / "fifo.yaml", "w") as fifo:  # opens when the program reads it
            process.send_signal(signal.SIGUSR1)
            fifo.write(text)
        result = self.wait(process)
        self.assertEqual(result.code, 130, str(result))
        step = self.summary("s.json")["last_step"]
        self.assertEqual((self.folder / "ck/latest").read_text(), f"step-{step:08}\n")


class MpiStop(StopCase, MpiCase):
    """The ranks are wrapped in a shell that notes their process ids."""

    def start_ranks(self, ranks, *args):
        script = f"echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec '{self.weft}' \"$@\""
        process = self.start([self.mpirun, *MPI_FLAGS, "-n", ranks, "sh", "-c", script, "weft",
                              "train", self.write(ENDLESS), "--summary", "s.json", "--out", "out",
                              *args])
        self.wait_for_steps(process)
        return process

    def pid(self, rank):
        return int((self.folder / f"pid.{rank}").read_text())

    def test_signal_to_one_rank_stops_all(self):
        for rank, number in ((1, signal.SIGUSR1), (0, signal.SIGINT), (2, signal.SIGTERM)):
            (self.folder / "out/metrics.jsonl").unlink(missing_ok=True)
            shutil.rmtree(self.folder / "ck", ignore_errors=True)
            process = self.start_ranks(3, "--checkpoint", "ck")
            os.kill(self.pid(rank), number)
            result = self.wait(process)
            self.assertEqual(result.code, 130, str(result))
            self.check_stopped()

    def test_signal_to_the_launcher(self):
        process = self.start_ranks(2, "--checkpoint", "ck")
        process.send_signal(signal.SIGUSR1)  # mpirun passes it on
        result = self.wait(process)
        self.assertEqual(result.code, 130, str(result))
        self.check_stopped()

    def codes(self, ranks, *args):
        """Runs a job that ends by itself or is stopped by the test; the exit code of each rank.

        The shells end with 0, so that the launcher ends no rank before its own end."""
        script = (f"echo $$ >pid.$OMPI_COMM_WORLD_RANK; '{self.weft}' \"$@\"; "
                  "echo $? >code.$OMPI_COMM_WORLD_RANK")
        process = self.start([self.mpirun, *MPI_FLAGS, "-n", ranks, "sh", "-c", script, "weft",
                              "train", "job.yaml", *args])
        yield process
        result = self.wait(process)
        yield [(self.folder / f"code.{rank}").read_text().strip() for rank in range(ranks)], result

    def test_all_ranks_end_with_the_same_code(self):
        self.write(ENDLESS)
        ending = self.codes(3, "--summary", "s.json", "--out", "out")
        process = next(ending)
        self.wait_for_steps(process)
        children = pathlib.Path(f"/proc/{self.pid(1)}/task/{self.pid(1)}/children").read_text()
        os.kill(int(children), signal.SIGUSR1)
        codes, result = next(ending)
        self.assertEqual(codes, ["130"] * 3, str(result))
        self.assertIn("weights hash", result.out)  # rank 0 has told all
        self.check_stopped(checkpoint=False)

    def test_all_ranks_end_with_the_code_of_an_error(self):
        self.write(BASE, values={"train.steps": 4})
        ending = self.codes(3, "--summary", ".")  # a folder
        next(ending)
        codes, result = next(ending)
        self.assertEqual(codes, ["1"] * 3, str(result))
        # Found by rank 0 when all have trained: a figure that is lost ends nothing.
        ending = self.codes(3, "--summary", "/dev/full")
        next(ending)
        codes, result = next(ending)
        self.assertEqual(codes, ["0"] * 3, str(result))
        self.assertIn("the training is complete", result.err)

    def test_killed_rank_ends_the_job(self):
        for rank, args in ((1, ()), (0, ()), (1, ("--set", "mesh.groups=2"))):
            (self.folder / "out/metrics.jsonl").unlink(missing_ok=True)
            process = self.start_ranks(2, *args)
            pids = [self.pid(0), self.pid(1)]
            os.kill(pids[rank], signal.SIGKILL)
            began = time.monotonic()
            result = self.wait(process, limit=60)
            self.assertNotEqual(result.code, 0, str(result))
            self.assertLess(time.monotonic() - began, 60)
            for pid in pids:
                self.assertFalse(os.path.exists(f"/proc/{pid}/exe"), f"{pid} is left over")


class MpiAgreement(MpiCase):
    """Ranks that were given different jobs end in order, and the one that differs is named."""

    def run_ranks(self, *ranks):
        """Each rank is its arguments of mpirun and of the program."""
        command = [self.mpirun, *MPI_FLAGS]
        for i, (launcher, args) in enumerate(ranks):
            command += [":"] if i > 0 else []
            command += ["-n", "1", *launcher, self.weft, *args]
        return self.wait(self.start(command))

    def test_configuration(self):
        config = self.write()
        train = ["train", config, "--summary", "s.json"]
        result = self.run_ranks(([], train), ([], train), ([], [*train, "--set", "seed=2"]))
        self.assertEqual(result.code, 4, str(result))
        self.assertIn("rank 2 differs from rank 0 in its configuration", result.err)
        self.assertFalse((self.folder / "s.json").exists())

    def test_shape_of_the_model(self):
        """What would be exchanges of different sizes is found before any of them."""
        config = self.write()
        for change in ("batch_size=32", "tables.a.num_embeddings=301", "model.top_mlp=[8]",
                       "train.steps=3", "numerics.parts=4", "tables.b.sharding=row_wise"):
            result = self.run_ranks(([], ["train", config]),
                                    ([], ["train", config, "--set", change]))
            self.assertEqual(result.code, 4, str(result))
            self.assertIn("rank 1 differs from rank 0 in its configuration", result.err)

    def test_data(self):
        config = self.write(CRITEO)
        folders = []
        text = criteo_text(64)
        for name, content in (("one", text), ("two", with_inverted_labels(text))):
            folder = self.folder / name
            folder.mkdir()
            (folder / "train.txt").write_text(content)
            folders.append(["-wdir", folder])
        train = ["train", self.folder / config]
        result = self.run_ranks((folders[0], train), (folders[1], train))
        self.assertEqual(result.code, 4, str(result))
        self.assertIn("rank 1 differs from rank 0 in its data", result.err)
        result = self.run_ranks((folders[0], train), (folders[0], train))
        self.assertEqual(result.code, 0, str(result))

    def test_data_missing_on_one_rank(self):
        config = self.write(CRITEO)
        (self.folder / "train.txt").write_text(criteo_text(64))
        (self.folder / "empty").mkdir()
        train = ["train", self.folder / config]
        result = self.run_ranks(([], train), (["-wdir", self.folder / "empty"], train))
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("rank 1: ", result.err)
        self.assertIn("train.txt", result.err)

    def test_configuration_broken_on_one_rank(self):
        config = self.write()
        result = self.run_ranks(([], ["train", config]),
                                ([], ["train", config, "--set", "seeed=2"]))
        self.assertEqual(result.code, 2, str(result))
        self.assertIn("did you mean 'seed'", result.err)

    def test_command_differs(self):
        config = self.write()
        result = self.run_ranks(([], ["train", config]), ([], ["eval", config]))
        self.assertEqual(result.code, 4, str(result))
