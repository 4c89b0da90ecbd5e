"""A seeded driver of everything that can happen to a job in weeks, in seconds.

Usage: chaos.py WEFT [--mpirun MPIRUN] [--seed N] [--cases N]

A case is one job that is started again and again with --resume auto, each time with another number of
ranks, as threads or under mpirun, and each time something happens to it: a kill, a stop, the same
signal twice, a full disk, a file that blocks, a return to an earlier step, other data, a second job in
its folder. The job is then trained to its end. What must hold:

  - every start ends within the timeout, with an exit code that says what happened;
  - the newest checkpoint that was announced is what the next start resumes from;
  - at the end the weights are those of the job that nothing happened to.

A failing case prints its seed and the events up to there, and leaves its folder.
"""

import argparse
import json
import os
import pathlib
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness

STEPS = 1600
TIMEOUT_S = 10  # train.timeout_s of the jobs
TIMED_OUT = 4  # the exit code after train.timeout_s
STOPPED = 130  # the exit code of a job that a signal has ended and that has saved
END_S = 90  # a start that takes longer hangs: STEPS take some seconds, on a loaded machine too

CONFIG = harness.with_values(harness.BASE, {
    "data.synthetic.samples": STEPS,
    "data.synthetic.eval_samples": 100,
    "train": {"steps": STEPS, "log_every": 100, "timeout_s": TIMEOUT_S},
})


class Failed(Exception):
    pass


def expect(condition, text):
    if not condition:
        raise Failed(text)


class Chaos:
    """One case: a folder, a job in it, and what has happened to it."""

    def __init__(self, weft, mpirun, seed, folder, reference):
        self.weft, self.mpirun, self.folder = weft, mpirun, folder
        self.random = random.Random(seed)
        self.reference = reference
        self.events = []
        self.announced = 0  # the step of the newest checkpoint of the line
        self.starts = 0
        (folder / "job.yaml").write_text(json.dumps(CONFIG))
        self.mounted = False

    # ---- starting and ending ----

    def command(self, *more, resume="auto", keep=None):
        launcher, ranks = [], ["--ranks", str(self.random.randint(1, 3))]
        if self.mpirun and self.random.random() < 0.3:
            launcher = [self.mpirun, *harness.MPI_FLAGS, "-n", ranks[1]]
            ranks = []
        every = self.random.choice([20, 50, 100, 170])
        keep = keep or self.random.choice([1, 2, 3])
        schedule = self.random.choice(["sync", "prefetch", "dbp", "fwp", "nested", "nested"])
        background = ["--checkpoint-background"] if self.random.random() < 0.5 else []
        return [*launcher, self.weft, "train", "job.yaml", *ranks, "--resume", resume, *background,
                "--checkpoint", "ck/job", "--checkpoint-every", str(every),
                "--checkpoint-keep", str(keep), "--out", "out", "--summary", "s.json",
                "--set", f"pipeline.schedule={schedule}", *more]

    def start(self, command):
        self.starts += 1
        log = open(self.folder / f"log-{self.starts}", "w")
        prefixes = ("OMPI_", "PMI", "SLURM_")
        process = subprocess.Popen(
            command, cwd=self.folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={k: v for k, v in os.environ.items() if not k.startswith(prefixes)},
            start_new_session=True)
        process.log = log.name
        log.close()
        return process

    def end(self, process, limit=END_S):
        """The exit code and all that was printed; a start that hangs fails the case."""
        try:
            code = process.wait(limit)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise Failed(f"{process.args} is still running after {limit} s\n"
                         + pathlib.Path(process.log).read_text(errors="replace")) from None
        return code, pathlib.Path(process.log).read_text(errors="replace")

    def run_for_a_while(self, process):
        """Waits a random time, shorter more often; the job may be at any place, or at its end."""
        time.sleep(self.random.choice([0.1, 0.3, 0.6, 1.0, 1.6]) * self.random.random())

    def note_saved(self, text):
        """A checkpoint that was announced is never lost."""
        resumed = re.search(r"resumed at step (\d+) ", text)
        saved = [int(s) for s in re.findall(r"checkpoint \S*step-(\d+)", text)]
        if resumed:
            expect(int(resumed[1]) >= self.announced,
                   f"resumed at step {resumed[1]}, but step {self.announced} was announced\n{text}")
            self.announced = int(resumed[1])
        if saved:
            self.announced = saved[-1]

    def last_step(self, text):
        """The newest step that the job has told of."""
        return max([int(s) for s in re.findall(r"step (\d+)", text)], default=0)

    def checked(self, process, codes, says=None):
        code, text = self.end(process)
        self.events[-1] += f"({code} at {self.last_step(text)})"
        expect(code in codes, f"exit code {code}, not one of {codes}: {process.args}\n{text}")
        if says:
            expect(says in text, f"'{says}' is not in\n{text}")
        self.note_saved(text)
        return code, text

    def signal_ranks(self, process, number):
        """To one process of the job: a rank, as a scheduler on its machine would. Open MPI's launcher is
        spared, because it may crash when it is signalled twice before it has started the ranks."""
        ranks = self.ranks_of(process)
        if not ranks and process.args[0] == self.mpirun:
            return
        try:
            os.kill(self.random.choice(ranks) if ranks else process.pid, number)
        except ProcessLookupError:
            pass

    def ranks_of(self, process):
        """Processes of the program in the session of `process`."""
        found = []
        for entry in pathlib.Path("/proc").iterdir():
            try:
                if entry.name.isdigit() and os.getsid(int(entry.name)) == process.pid and \
                        os.readlink(entry / "exe") == self.weft:
                    found.append(int(entry.name))
            except OSError:
                continue
        return found

    # ---- what happens ----

    def kill(self, instead=False):
        if instead:  # there is nothing yet to do the other thing with
            self.events[-1] = "kill"
        process = self.start(self.command())
        self.run_for_a_while(process)
        self.signal_ranks(process, signal.SIGKILL)
        self.checked(process, range(-64, 256))

    def stop(self):
        process = self.start(self.command())
        self.run_for_a_while(process)
        number = self.random.choice([signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
        self.signal_ranks(process, number)
        self.stopped(process, number)

    def double_signal(self):
        process = self.start(self.command())
        self.run_for_a_while(process)
        for _ in range(self.random.randint(2, 4)):
            self.signal_ranks(process, signal.SIGTERM)
            time.sleep(0.01 * self.random.random())
        self.stopped(process, signal.SIGTERM)

    def stopped(self, process, number):
        """The job ends by itself, and says where it stood. Before it listens a signal ends it as it does
        any program, and mpirun then has a code of its own."""
        codes = {0, -number, STOPPED}
        if process.args[0] == self.mpirun:
            codes |= {1, number, 128 + number}
        code, text = self.checked(process, codes)
        if code == STOPPED and process.args[0] != self.mpirun:
            expect(self.announced >= self.last_step(text),
                   f"stopped at step {self.last_step(text)} without a checkpoint of it\n{text}")
        return text

    def full_disk(self):
        """Fills the file system of the checkpoints while the job runs, and frees it later."""
        if not self.mounted:
            return self.kill(instead=True)
        process = self.start(self.command("--checkpoint-max-age", "100000"))
        self.run_for_a_while(process)
        filler = self.folder / "ck/filler"
        try:
            with open(filler, "wb") as out:
                while True:
                    out.write(bytes(1 << 16))
        except OSError:
            pass
        if self.random.random() < 0.5:
            self.run_for_a_while(process)
            filler.unlink()
        self.checked(process, (0, 1, 5, 143))  # 1: before the first step nothing could be written
        filler.unlink(missing_ok=True)

    def blocked_file(self):
        """A file that the job writes does not answer: the job says which one, and ends."""
        metrics = self.folder / "out/metrics.jsonl"
        metrics.parent.mkdir(exist_ok=True)
        if metrics.exists():
            metrics.rename(metrics.with_suffix(".kept"))
        os.mkfifo(metrics)  # that nobody reads
        self.checked(self.start(self.command("--set", "train.timeout_s=1")),
                     (TIMED_OUT,), "out/metrics.jsonl' and nothing has moved")
        metrics.unlink()
        if metrics.with_suffix(".kept").exists():
            metrics.with_suffix(".kept").rename(metrics)

    def go_back(self):
        """From an earlier checkpoint into the same folder: what comes after it is another line."""
        found = sorted((self.folder / "ck/job").glob("step-*[0-9]/manifest.json"))
        if len(found) < 2:
            return self.kill(instead=True)
        earlier = self.random.choice(found[:-1]).parent
        self.announced = json.loads((earlier / "manifest.json").read_text())["step"]
        process = self.start(self.command(resume=str(earlier.relative_to(self.folder))))
        self.run_for_a_while(process)
        self.signal_ranks(process, signal.SIGTERM)
        before = self.announced
        text = self.stopped(process, signal.SIGTERM)
        if not re.search(r"checkpoint \S*step-(\d+)", text):
            # Nothing was saved: the folder's newest is still what it was, which is not before this.
            self.announced = before

    def other_data(self):
        """Other clicks of the same shape. More samples would not do: between two epochs they are taken."""
        if self.announced == 0:
            return self.kill(instead=True)
        process = self.start(self.command("--set", "data.synthetic.signal=0.7"))
        code, text = self.checked(process, (0, 5))
        # After a return to an earlier step the folder's newest checkpoint may be the last one.
        says = "the job is complete" if code == 0 else "--resume-data"
        expect(says in text, f"'{says}' is not in\n{text}")

    def second_job(self):
        first = self.start(self.command())
        self.run_for_a_while(first)
        second = self.start(self.command())
        codes = [self.end(second), self.end(first)]
        expect(all(code in (0, 5) for code, _ in codes), f"exit codes\n{codes}")
        for _, text in codes[::-1]:
            if "checkpoint ck/job" in text:
                self.note_saved(text)

    # ---- a case ----

    def run(self, events):
        (self.folder / "ck").mkdir()
        if os.geteuid() == 0:
            done = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "tmpfs", "ck"],
                                  cwd=self.folder, capture_output=True, check=False)
            self.mounted = done.returncode == 0
        try:
            kinds = [self.kill, self.stop, self.double_signal, self.full_disk, self.blocked_file,
                     self.go_back, self.other_data, self.second_job]
            for _ in range(events):
                event = self.random.choice(kinds)
                self.events.append(event.__name__)
                event()
            self.events.append("end")
            self.checked(self.start(self.command()), (0,))
            summary = json.loads((self.folder / "s.json").read_text())
            for key in ("weights_hash", "state_hash"):
                expect(summary[key] == self.reference[key],
                       f"{key} is {summary[key]}, not {self.reference[key]}")
        finally:
            if self.mounted:
                subprocess.run(["umount", "-l", "ck"], cwd=self.folder, check=False)


def reference_of(weft, folder):
    (folder / "job.yaml").write_text(json.dumps(CONFIG))
    subprocess.run([weft, "train", "job.yaml", "--ranks", "2", "--quiet", "--summary", "r.json"],
                   cwd=folder, check=True, timeout=10 * END_S)
    return json.loads((folder / "r.json").read_text())


def run_cases(weft, mpirun, seed, cases, out=sys.stdout):
    """Returns how many failed; prints what happened to each."""
    failed = 0
    with tempfile.TemporaryDirectory(prefix="weft-chaos-") as folder:
        reference = reference_of(weft, pathlib.Path(folder))
    for case in range(seed, seed + cases):
        folder = pathlib.Path(tempfile.mkdtemp(prefix=f"weft-chaos-{case}-"))
        chaos = Chaos(weft, mpirun, case, folder, reference)
        try:
            chaos.run(events=3)
            print(f"seed {case}: {' '.join(chaos.events)}", file=out, flush=True)
            shutil.rmtree(folder)
        except Failed as problem:
            failed += 1
            print(f"seed {case} FAILED: {' '.join(chaos.events)}, in {folder}\n{problem}",
                  file=out, flush=True)
    print(f"{cases - failed} of {cases} cases held, seeds {seed} to {seed + cases - 1}", file=out)
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("weft")
    parser.add_argument("--mpirun")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--cases", type=int, default=200)
    arguments = parser.parse_args()
    weft = os.path.realpath(arguments.weft)
    sys.exit(run_cases(weft, arguments.mpirun, arguments.seed, arguments.cases) != 0)


if __name__ == "__main__":
    main()
