"""Disks that are slow on one rank, and disks that never answer (slow_disk.c)."""

import os
import signal

from harness import BASE, Case, CRITEO, MPI_FLAGS, MpiCase, criteo_text, with_values

HANGS = with_values(BASE, {"train.steps": 3, "train.timeout_s": 1})


class DiskCase(Case):
    def environment(self):
        values = {"LD_PRELOAD": os.environ["WEFT_SLOW_DISK"], **self.disk}
        return {**super().environment(), **values}

    disk = {}


class SlowDisk(DiskCase):
    def hangs(self, *args, says):
        """The job ends by itself, with a timeout that says where it was."""
        self.refused(4, "train", self.write(HANGS), "--ranks", 2, "--quiet", *args,
                     says=["and nothing has moved for 1.0 s", *says])

    def test_a_save_that_hangs_ends_the_job(self):
        self.disk = {"SLOW_DISK_FILE": "rank-0000.bin"}
        self.hangs("--checkpoint", "ck",
                   says=["rank 0: rank 0 has been writing 'ck/step-00000003", "rank-0000.bin'"])
        self.disk = {"SLOW_DISK_FILE": "-1-0.rows"}  # the first segment of rank 1
        self.hangs("--checkpoint", "ck2",
                   says=["rank 1: rank 1 has been writing rows to 'ck2/rows'"])

    def test_a_load_that_hangs_ends_the_job(self):
        self.train(self.write(HANGS), "--checkpoint", "ck", ranks=2)
        for part, file in (("rank-0000.bin", "step-00000003/rank-0000.bin'"), ("-1-0.rows", "rows/")):
            self.disk = {"SLOW_DISK_FILE": part}
            self.hangs("--resume", "ck", "--set", "train.steps=5",
                       says=[f"has been reading 'ck/{file}"])

    def test_data_that_hang_end_the_job(self):
        (self.folder / "train.txt").write_text(criteo_text(64))
        self.disk = {"SLOW_DISK_FILE": "train.txt"}
        config = self.write(with_values(CRITEO, {"train.timeout_s": 1}))
        self.refused(4, "train", config, "--quiet",
                     says=["rank 0 has been opening 'train.txt'"])

    def test_records_that_hang_end_the_job(self):
        config = self.write(HANGS)
        for ranks in (1, 2):
            for name, args in (("metrics.jsonl", ["--out"]), ("summary.json", ["--out"]),
                               ("trace-00000.json", ["--trace-steps", "1:3", "--trace"])):
                out = f"{name}-{ranks}"
                self.disk = {"SLOW_DISK_FILE": f"{out}/{name}"}
                self.refused(4, "train", config, "--ranks", ranks, "--quiet", *args, out,
                             says=[f"rank 0 has been writing '{out}/{name}",
                                   "and nothing has moved for 1.0 s"])

    def test_a_fifo_in_place_of_a_file_is_refused(self):
        config = self.write(HANGS)
        self.train(config, "--checkpoint", "ck", ranks=2)
        for part in (self.folder / "ck/step-00000003/rank-0000.bin",
                     next((self.folder / "ck/rows").glob("*-1-0.rows"))):
            bytes_before = part.read_bytes()
            part.unlink()
            os.mkfifo(part)
            self.refused(5, "train", config, "--ranks", 2, "--quiet", "--resume", "ck",
                         "--set", "train.steps=5", says=f"{part.name}' is not a regular file")
            part.unlink()
            part.write_bytes(bytes_before)

    def test_a_stop_request_says_what_it_waits_for(self):
        self.disk = {"SLOW_DISK_FILE": "rank-0000.bin"}
        config = self.write(HANGS, values={"train.timeout_s": 60})
        process = self.start([self.weft, "train", config, "--checkpoint", "ck"])
        self.wait_for(lambda: list(self.folder.glob("ck/*/rank-0000.bin")), process, "a save")
        process.send_signal(signal.SIGUSR1)
        self.wait_for(lambda: "now: rank 0: writing 'ck/step-00000003" in self.log_of(process),
                      process, "an answer")


class MpiSlowDisk(DiskCase, MpiCase):
    def start_ranks(self, config, *args):
        return self.wait(self.start(self.mpi_command(2, "train", config, "--quiet", *args)))

    def test_a_save_that_hangs_ends_the_job(self):
        self.disk = {"SLOW_DISK_FILE": "-1-0.rows"}
        result = self.start_ranks(self.write(HANGS), "--checkpoint", "ck")
        self.assertEqual(result.code, 4, str(result))
        self.assertIn("rank 1 has been writing rows to 'ck/rows'", result.err)

    def test_all_ranks_hang(self):
        """Nobody comes to the end who could say that others do not."""
        self.disk = {"SLOW_DISK_FILE": "-0.rows"}
        result = self.start_ranks(self.write(HANGS), "--checkpoint", "ck")
        self.assertEqual(result.code, 4, str(result))
        self.assertIn("has been writing rows to 'ck/rows'", result.err)

    def test_a_rank_that_skips_more_slowly_is_waited_for(self):
        """Rank 1 needs some seconds for what rank 0 has at once, more than the timeout."""
        (self.folder / "train.txt").write_text(criteo_text(40000))
        config = self.write(CRITEO, values={
            "data.eval_path": [], "data.shuffle.enabled": False, "batch_size": 2000,
            "train.steps": 18, "train.timeout_s": 2})
        whole = self.train(config, "--set", "train.steps=19", "--set", "train.timeout_s=60")
        self.train(config, "--checkpoint", "ck", "--set", "train.timeout_s=60")
        self.disk = {"SLOW_DISK_FILE": "train.txt", "SLOW_DISK_MS": "400", "SLOW_DISK_RANK": "1"}
        result = self.start_ranks(config, "--resume", "ck", "--set", "train.steps=19",
                                  "--summary", "s.json")
        self.assertEqual(result.code, 0, str(result))
        self.assert_same_bits(whole, self.summary("s.json"))
