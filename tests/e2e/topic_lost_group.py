"""A replica group is lost: the job ends and says so, and goes on with the other group."""

import os
import signal
import time

from harness import BASE, MPI_FLAGS, MpiCase, with_values

TIMEOUT_S = 5
GROUPS = with_values(BASE, {
    "train.steps": 10**9, "train.log_every": 1, "train.timeout_s": TIMEOUT_S,
    "data.synthetic.eval_samples": 0,
    "sparse_optimizer": {"type": "adagrad", "learning_rate": 0.05},
    "mesh": {"groups": 2, "sync": "touched", "sync_every": 2}})


class MpiLostGroup(MpiCase):
    """4 ranks of 2 groups, wrapped in a shell that notes their process ids; group 1 is lost."""

    def lose_group(self, number):
        """Sends group 1 a signal after a checkpoint; returns how the job ended."""
        script = f"echo $$ >pid.$OMPI_COMM_WORLD_RANK; exec '{self.weft}' \"$@\""
        process = self.start([self.mpirun, *MPI_FLAGS, "-n", 4, "sh", "-c", script, "weft", "train",
                              self.write(GROUPS), "--threads", 1, "--checkpoint", "ck",
                              "--checkpoint-every", 20, "--checkpoint-keep", 2])
        latest = self.folder / "ck/latest"
        # The second one: of the first, ranks may not know yet that it is complete.
        self.wait_for(lambda: latest.exists() and "step-00000020" not in latest.read_text(), process,
                      "two checkpoints")
        pids = [int((self.folder / f"pid.{rank}").read_text()) for rank in range(4)]
        for pid in pids[2:]:
            os.kill(pid, number)
        began = time.monotonic()
        result = self.wait(process, limit=90)
        self.assertNotEqual(result.code, 0, str(result))
        # A wait, twice as long for the end, and a loaded machine.
        self.assertLess(time.monotonic() - began, 3 * TIMEOUT_S + 45)
        for pid in pids:
            self.assertFalse(os.path.exists(f"/proc/{pid}/exe"), f"{pid} is left over")
        self.assertIn("2 replica groups of 2 ranks: rank r of the world is in group r / 2",
                      result.err)
        return result

    def go_on(self):
        """Resumes on the ranks of one group, to the end."""
        step = int((self.folder / "ck/latest").read_text().strip().removeprefix("step-"))
        self.assertEqual(step % 20, 0)
        more = ["--threads", 1, "--resume", "ck", "--set", "mesh.groups=1", "--set",
                f"train.steps={step + 6}"]
        result = self.wait(self.start(self.mpi_command(2, "train", "job.yaml", "--summary",
                                                       "s.json", *more)))
        self.assertEqual(result.code, 0, str(result))
        for part in ("the checkpoint is of 2 replica groups of 2 ranks, this job has 1 of 2; "
                     "Adagrad's sums are converted",
                     "the checkpoint's plan is for 4 ranks; made a new plan for 2 ranks"):
            self.assertIn(part, result.err)
        summary = self.summary("s.json")
        self.assertEqual((summary["steps"], summary["last_step"]), (6, step + 6))
        self.assert_same_bits(summary, self.train("job.yaml", *more, ranks=2))

    def test_killed(self):
        """The launcher sees it, names a rank, and ends the others."""
        result = self.lose_group(signal.SIGKILL)
        self.assertRegex(result.out + result.err, r"process rank [23] .*exited on signal 9")
        self.go_on()

    def test_silent(self):
        """As when a host's power fails: only a wait that is too long tells."""
        result = self.lose_group(signal.SIGSTOP)
        self.assertIn("these are missing: rank ", result.err)
        self.assertIn("Lost: rank 2 (group 1), rank 3 (group 1); whole replica groups: 1 of 2; "
                      "resume with --resume ck on their 2 ranks with mesh.groups=1", result.err)
        self.go_on()
