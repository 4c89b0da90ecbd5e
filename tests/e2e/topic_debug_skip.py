"""debug.skip: a step without a stage, and never taken for training."""

import json

from harness import Case, MpiCase

# What each stage takes away from the trace.
GONE = {
    "lookup": {"lookup"},
    "exchange": {"output_dist", "grad_dist", "reduce"},
    "dense": {"forward_backward", "weight_gradients"},
    "update": {"coalesce", "update_rows", "update_dense"},
}
ALL = set.union(*GONE.values())


class Checks:
    def check(self, skip, summary):
        self.assertEqual(summary["skipped_stages"], list(skip))
        self.assertIsNone(summary["weights_hash"])
        self.assertIsNone(summary["eval"])
        self.assertEqual(summary["steps"], 16)
        gone = set().union(*(GONE[stage] for stage in skip))
        for file in (self.folder / "trace").iterdir():
            events = json.loads(file.read_text())["traceEvents"]
            names = {event["name"] for event in events if event.get("cat") == "cpu_op"}
            self.assertEqual(names & ALL, ALL - gone, skip)


class DebugSkip(Case, Checks):
    def test_every_stage_alone_and_together(self):
        config = self.write()
        for skip in (*((stage,) for stage in GONE), ("lookup", "exchange"), ("dense", "update"),
                     tuple(GONE)):
            summary = self.train(config, "--set", f"debug.skip=[{', '.join(skip)}]",
                                 "--trace", "trace", "--trace-steps", "2:16", ranks=2)
            self.check(skip, summary)

    def test_every_sharding(self):
        for sharding in ("table_wise", "row_wise", "column_wise", "data_parallel"):
            values = {f"tables.{i}.sharding": sharding for i in range(3)}
            config = self.write(values=values)
            for stage in GONE:
                self.train(config, "--set", f"debug.skip={stage}", ranks=3)

    def test_fresh_memory_is_not_read(self):
        # The check device fills fresh memory with NaN: a stage that reads what a skipped one should
        # have written would show it in DeepFM's logit, whose linear part no activation hides.
        for sharding in ("table_wise", "row_wise"):
            config = self.write(values={"train.device": "check", "model.type": "deepfm",
                                        **{f"tables.{i}.sharding": sharding for i in range(3)}})
            for stage in GONE:
                summary = self.train(config, "--set", f"debug.skip={stage}", ranks=2)
                if stage != "dense":
                    self.assertIsNotNone(summary["loss"], (sharding, stage))
                self.assertIsNone(summary["auc"])

    def test_says_so(self):
        config = self.write()
        result = self.run_weft("train", config, "--set", "debug.skip=dense")
        self.assertIn("debug.skip leaves out dense: this is no training", result.err)
        figures = [line for line in result.err.splitlines() if "samples/s" in line]
        self.assertTrue(figures and all(line.startswith("NOT TRAINING") for line in figures))
        self.assertIn("NOT TRAINED", result.out)
        self.assertNotIn("weights hash", result.out)

    def test_saves_and_evaluates_nothing(self):
        config = self.write()
        for arguments in (("--checkpoint", "ck"), ("--resume", "ck")):
            self.refused(2, "train", config, "--set", "debug.skip=update", *arguments,
                         says=("debug.skip", "update", "--checkpoint"))
        self.assertFalse((self.folder / "ck").exists())
        self.refused(2, "eval", config, "--set", "debug.skip=update", says="debug.skip")

    def test_unknown_stage(self):
        self.refused(2, "train", self.write(), "--set", "debug.skip=[dense, lokup]",
                     says=("debug.skip", "'lokup'", "did you mean 'lookup'"))


class MpiDebugSkip(MpiCase, Checks):
    def test_every_stage(self):
        config = self.write()
        for stage in GONE:
            command = self.mpi_command(2, "train", config, "--quiet", "--summary", "mpi.json",
                                       "--set", f"debug.skip={stage}", "--trace", "trace",
                                       "--trace-steps", "2:16")
            result = self.wait(self.start(command))
            self.assertEqual(result.code, 0, str(result))
            self.check((stage,), self.summary("mpi.json"))
