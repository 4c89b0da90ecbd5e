"""Event files: TensorBoard's own reader sees what metrics.jsonl says."""

import json

from harness import Case


class Tensorboard(Case):
    def test_figures(self):
        config = self.write(values={"train.eval_every": 8})
        self.train(config, "--out", "out", "--tensorboard", "made/tb", ranks=2)
        files = list((self.folder / "made/tb").iterdir())
        self.assertEqual(len(files), 1)
        self.train(config, "--tensorboard", "made/tb")
        self.assertEqual(len(list((self.folder / "made/tb").iterdir())), 2)
        try:
            from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
        except ImportError:
            self.skipTest("the tensorboard package is not installed")
        events = EventAccumulator(str(files[0]))
        events.Reload()
        lines = [json.loads(line)
                 for line in (self.folder / "out/metrics.jsonl").read_text().splitlines()]
        trained = [line for line in lines if line["type"] == "train"]
        evaluated = [line for line in lines if line["type"] == "eval"]
        losses = events.Scalars("train/loss")
        self.assertEqual([event.step for event in losses], [line["step"] for line in trained])
        for event, line in zip(losses, trained):
            self.assertAlmostEqual(event.value, line["tasks"][0]["loss"], places=5)
        for event, line in zip(events.Scalars("eval/auc"), evaluated):
            self.assertEqual(event.step, line["step"])
            self.assertAlmostEqual(event.value, line["auc"], places=5)
        tags = set(events.Tags()["scalars"])
        self.assertTrue({"train/ne", "eval/ne", "speed/samples_per_s", "time/dense",
                         "time/exchange"} <= tags, tags)

    def test_folder_that_cannot_be_written(self):
        (self.folder / "file").write_text("")
        self.refused(1, "train", self.write(), "--tensorboard", "file/inside", says="file/inside")
