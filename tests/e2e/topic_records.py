"""Figures and checkpoints that cannot be written for a while, and records that must stay."""

import json
import os
import resource
import signal
import struct
import subprocess

from harness import BASE, Case, with_values

# Never ends by itself; a line of figures per step.
ENDLESS = with_values(BASE, {"train.steps": 10**9, "train.log_every": 1})
RUN = ["config.yaml", "metrics.jsonl", "plan.yaml", "summary.json"]


class FileLimit:
    """A file system on which no file of a process grows beyond a size."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()

    def fill(self, process, metrics):
        limit = metrics.stat().st_size + 300
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))

    def free(self, process):
        unlimited = (resource.RLIM_INFINITY, resource.RLIM_INFINITY)
        resource.prlimit(process.pid, resource.RLIMIT_FSIZE, unlimited)

    def close(self):
        pass


class FullDisk:
    """A small file system of its own that is filled up."""

    def __init__(self, folder):
        self.folder = folder
        folder.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m", "tmpfs", folder], check=True,
                       stderr=subprocess.DEVNULL)

    def fill(self, process, metrics):
        del process, metrics
        with open(self.folder / "filler", "wb", buffering=0) as filler:
            try:
                while True:
                    filler.write(bytes(4096))
            except OSError:
                pass

    def free(self, process):
        del process
        (self.folder / "filler").unlink()

    def close(self):
        subprocess.run(["umount", "-l", self.folder], check=True)


class Records(Case):
    def lines(self, path):
        """Every line of a metrics.jsonl, whole."""
        text = path.read_text()
        self.assertTrue(text.endswith("\n"))
        return [json.loads(line) for line in text.splitlines()]

    def events(self, path):
        """The number of records of an event file, which must be whole."""
        data = path.read_bytes()
        count = 0
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            self.assertLessEqual(12 + length + 4, len(data))
            data = data[12 + length + 4:]
            count += 1
        return count

    def outlives(self, disk):
        config = self.write(ENDLESS)
        out, tb, ck = (disk.folder / name for name in ("out", "tb", "ck"))
        process = self.start(
            [self.weft, "train", config, "--ranks", 2, "--quiet", "--out", out, "--tensorboard", tb,
             "--checkpoint", ck, "--checkpoint-every", 40, "--checkpoint-keep", 2,
             "--checkpoint-max-age", 10**9, "--summary", "s.json"], restore_signals=False)
        metrics = out / "metrics.jsonl"

        def grown(more):
            before = metrics.stat().st_size if metrics.exists() else 0
            self.wait_for(lambda: metrics.exists() and metrics.stat().st_size > before + more,
                          process, "training")

        grown(8000)
        self.wait_for((ck / "latest").exists, process, "a checkpoint")
        disk.fill(process, metrics)
        for text, times in (("metrics.jsonl: ", 1), ("events.out.tfevents", 1),
                            ("no checkpoint: ", 2)):  # so at least 40 lines of figures are lost
            self.wait_for(lambda: self.log_of(process).count(text) >= times, process, text)
        saved = (ck / "latest").read_text()
        disk.free(process)
        grown(4000)
        self.wait_for(lambda: (ck / "latest").read_text() != saved, process, "another checkpoint")
        process.send_signal(signal.SIGTERM)
        result = self.wait(process)
        self.assertEqual(result.code, 130, str(result))
        summary = self.summary("s.json")
        lost = summary["lost_records"]
        for name in ("metrics", "events", "checkpoints"):
            self.assertGreater(lost[name], 0, name)
        # Not one warning per record; more than one only where a shorter record still found room.
        self.assertLess(result.err.count("weft: warning: cannot write"), lost["metrics"] / 2,
                        str(result))
        steps = [line["step"] for line in self.lines(metrics)]
        self.assertEqual(steps, sorted(set(steps)))
        self.assertEqual(len(steps) + lost["metrics"], summary["last_step"])
        (events,) = tb.iterdir()
        self.assertEqual(self.events(events) - 1 + lost["events"], summary["last_step"])
        self.assertEqual(json.loads((out / "summary.json").read_text()), summary)
        more = ["--set", f"train.steps={summary['last_step'] + 5}"]
        self.assert_same_bits(self.train(config, *more),
                              self.train(config, *more, "--resume", ck))

    def test_files_that_cannot_grow(self):
        self.outlives(FileLimit(self.folder / "disk"))

    def test_full_disk(self):
        try:
            disk = FullDisk(self.folder / "disk")
        except (subprocess.CalledProcessError, FileNotFoundError):
            self.skipTest("a file system of its own needs root")
        self.addCleanup(disk.close)
        self.outlives(disk)

    def limited(self, *args, code):
        """A run whose files have 30 kB at most: figures fit, checkpoints do not."""
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (30000, resource.RLIM_INFINITY))

        return self.run_weft("train", self.write(), "--quiet", "--checkpoint", "ck", *args,
                             code=code, restore_signals=False, preexec_fn=limit)

    def test_checkpoint_that_is_too_old(self):
        for args, failures, back, limit in (((), 3, 16, 12),
                                            (("--checkpoint-max-age", 5), 1, 8, 5)):
            result = self.limited("--checkpoint-every", 4, *args, code=5)
            self.assertEqual(result.err.count("The training goes on and tries again"), failures,
                             str(result))
            self.assertIn(f"its newest complete checkpoint is {back} steps back, more than {limit} "
                          "(--checkpoint-max-age)", result.err)

    def test_final_checkpoint_is_needed(self):
        for args in ((), ("--checkpoint-every", 16), ("--checkpoint-every", 12)):
            result = self.limited(*args, code=5)
            self.assertIn("weft: error: rank 0: ", result.err)
            self.assertNotIn("the job ends, because", result.err)

    def test_max_age_needs_an_interval(self):
        self.refused(2, "train", self.write(), "--checkpoint", "ck", "--checkpoint-max-age", 5,
                     says="--checkpoint-max-age needs --checkpoint-every")

    def test_trace_that_cannot_be_written(self):
        def limit():
            resource.setrlimit(resource.RLIMIT_FSIZE, (16000, resource.RLIM_INFINITY))

        result = self.run_weft("train", self.write(), "--quiet", "--ranks", 2, "--trace", "trace",
                               "--trace-steps", "3:12", "--summary", "s.json",
                               restore_signals=False, preexec_fn=limit)
        self.assertEqual(self.summary("s.json")["lost_records"]["traces"], 2)
        self.assertIn("this part of the trace is lost", result.err)
        self.assertEqual(list((self.folder / "trace").iterdir()), [])

    def test_summary_that_cannot_be_written(self):
        """Of a training it is a warning; an evaluation has nothing else."""
        config = self.write()
        (self.folder / "out/summary.json").mkdir(parents=True)
        result = self.run_weft("train", config, "--quiet", "--out", "out", "--summary", "/dev/full")
        self.assertIn("cannot write out/summary.json", result.err)
        self.assertIn("cannot write /dev/full: No space left on device", result.err)
        self.assertEqual(result.err.count("the training is complete"), 2)
        self.refused(1, "eval", config, "--quiet", "--summary", "/dev/full", says="/dev/full")

    def test_evaluation_has_a_file_of_its_own(self):
        config = self.write()
        self.train(config, "--out", "out", "--checkpoint", "ck")
        before = {name: (self.folder / "out" / name).read_bytes() for name in RUN}
        self.assertEqual(sorted(os.listdir(self.folder / "out")), RUN)
        of_initial = self.train(config, "--out", "out", command="eval")
        of_trained = self.train(config, "--out", "out", "--resume", "ck", command="eval", ranks=2)
        self.assertEqual({name: (self.folder / "out" / name).read_bytes() for name in RUN}, before)
        self.assertEqual(sorted(os.listdir(self.folder / "out")),
                         sorted([*RUN, "eval.json", "eval-00000016.json"]))
        self.assertEqual(self.summary("out/eval.json"), of_initial)
        self.assertEqual(self.summary("out/eval-00000016.json"), of_trained)

    def test_resume_takes_out_what_is_beyond_it(self):
        config = self.write(values={"train.eval_every": 8})
        self.train(config, "--out", "whole")
        self.train(config, "--out", "out", "--checkpoint", "ck", "--checkpoint-every", 8)
        metrics = self.folder / "out/metrics.jsonl"
        with open(metrics, "a") as file:
            file.write('{"version": 1, "type": "train", "step": 3')  # cut by a crash
        result = self.run_weft("train", config, "--out", "out", "--resume", "ck/step-00000008")
        self.assertIn("lines of metrics.jsonl, cut or beyond step 8", result.err)

        def steps(path):
            return [(line["type"], line["step"]) for line in self.lines(path)]

        self.assertEqual(steps(metrics), steps(self.folder / "whole/metrics.jsonl"))
        self.assertEqual(sorted(os.listdir(self.folder / "out")), RUN)

    def test_earlier_run_is_kept(self):
        config = self.write()
        first = self.train(config, "--out", "out")
        before = {name: (self.folder / "out" / name).read_bytes() for name in RUN}
        result = self.run_weft("train", config, "--set", "train.steps=4", "--out", "out")
        self.assertIn("metrics.1.jsonl", result.err)
        for name in RUN:
            stem, ending = name.split(".")
            self.assertEqual((self.folder / f"out/{stem}.1.{ending}").read_bytes(), before[name])
        self.assertEqual(len(self.lines(self.folder / "out/metrics.jsonl")), 2)
        again = self.train("out/config.1.yaml", "--plan", "out/plan.1.yaml", "--out", "out")
        self.assert_same_bits(first, again)
        self.assertTrue((self.folder / "out/metrics.2.jsonl").exists())
