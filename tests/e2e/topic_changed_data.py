"""Data that change while a job reads them."""

import os
import shutil

from harness import BASE, Case, MpiCase, with_values

# Never ends by itself, and reads its file over and over, in an order that jumps about.
ENDLESS = with_values(BASE, {
    "data.format": "weft", "data.path": "log.weft", "data.eval_fraction": 0.01,
    "train.steps": 10**9, "train.log_every": 1, "batch_size": 256})


class ChangedDataCase(Case):
    def start_training(self, command, *args):
        generated = self.write(BASE, "generated.yaml", {"data.synthetic.samples": 60000})
        self.run_weft("data", "generate", generated, "--out", "log.weft", "--quiet")
        self.write(ENDLESS)
        process = self.start([*command, "train", "job.yaml", "--quiet", "--out", "out",
                              "--checkpoint", "ck", *args])
        metrics = self.folder / "out/metrics.jsonl"
        self.wait_for(lambda: metrics.exists() and metrics.read_text().count("\n") > 3, process,
                      "training")
        return process

    def check_cut(self, command, *args):
        process = self.start_training(command, *args)
        size = os.path.getsize(self.folder / "log.weft")
        os.truncate(self.folder / "log.weft", 100000)
        result = self.wait(process, limit=90)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn(f"weft file 'log.weft' had {size} bytes when it was opened", result.err)


class ChangedData(ChangedDataCase):
    def test_cut(self):
        for ranks in (1, 2):
            self.check_cut([self.weft], "--ranks", ranks)
            shutil.rmtree(self.folder / "out")

    def test_written_over_in_place(self):
        process = self.start_training([self.weft])
        with open(self.folder / "log.weft", "r+b") as file:
            file.seek(1000)
            file.write(bytes(500000))
        result = self.wait(process, limit=90)
        self.assertEqual(result.code, 3, str(result))
        self.assertIn("log.weft", result.err)

    def test_replaced(self):
        """A new file under the name is another file: the job goes on with the one it has."""
        process = self.start_training([self.weft])
        (self.folder / "new.weft").write_bytes(b"another")
        os.rename(self.folder / "new.weft", self.folder / "log.weft")
        self.wait_for(lambda: "was replaced or removed" in self.log_of(process), process, "a note")
        process.terminate()
        self.assertEqual(self.wait(process, limit=90).code, 130)


class MpiChangedData(ChangedDataCase, MpiCase):
    def test_cut(self):
        self.check_cut(self.mpi_command(2))
