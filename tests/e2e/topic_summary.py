"""What a job reports and leaves behind."""

import json

from harness import BASE, Case, MpiCase

REQUIRED = """version samples steps wall_s train_s samples_per_s loss ne auc log_loss calibration
eval bayes_ne weights_hash state_hash ranks threads peak_rss_bytes memory config""".split()
FIGURES = "samples loss ne auc log_loss calibration".split()


class Summary(Case):
    def test_has_all_fields(self):
        summary = self.train(self.write())
        for key in REQUIRED:
            self.assertIn(key, summary)
        for key in FIGURES:
            self.assertIn(key, summary["eval"])
        self.assertEqual(summary["samples"], 1000)
        self.assertEqual(summary["steps"], 16)  # 15 whole batches and a part
        self.assertEqual(summary["eval"]["samples"], 300)
        self.assertFalse(summary["stopped"])
        self.assertRegex(summary["weights_hash"], "^[0-9a-f]{16}$")
        for key in ("ne", "auc", "loss", "bayes_ne"):
            self.assertTrue(0 < summary[key] < 3, key)
        self.assertGreater(summary["peak_rss_bytes"], 1 << 20)
        self.assertGreater(summary["samples_per_s"], 0)

    def test_config_of_summary_gives_the_same_run(self):
        summary = self.train(self.write())
        (self.folder / "again.yaml").write_text(summary["config"])
        self.assert_same_bits(summary, self.train("again.yaml", ranks=2))

    def test_same_bits_on_any_ranks_and_threads(self):
        config = self.write()
        one = self.train(config)
        for ranks, threads in ((1, 1), (1, 3), (2, 1), (2, 2), (3, 1), (5, 1), (8, 1)):
            other = self.train(config, "--threads", threads, ranks=ranks)
            self.assert_same_bits(one, other, f"{ranks} ranks, {threads} threads")
            self.assertEqual((other["ranks"], other["threads"]), (ranks, threads))
            for key in FIGURES:
                self.assertEqual(one["eval"][key], other["eval"][key], key)
                self.assertEqual(one[key], other[key], key)

    def test_another_seed_gives_other_bits(self):
        config = self.write()
        other = self.train(config, "--set", "seed=4")
        self.assertNotEqual(self.train(config)["weights_hash"], other["weights_hash"])

    def test_out_folder(self):
        self.train(self.write(values={"train.eval_every": 8}), "--out", "made/of/folders")
        out = self.folder / "made/of/folders"
        self.assertEqual(sorted(path.name for path in out.iterdir()),
                         ["config.yaml", "metrics.jsonl", "plan.yaml", "summary.json"])
        lines = [json.loads(text) for text in (out / "metrics.jsonl").read_text().splitlines()]
        self.assertEqual({line["version"] for line in lines}, {1})
        evals = [line for line in lines if line["type"] == "eval"]
        self.assertEqual([line["step"] for line in evals], [8, 16])
        trained = [line for line in lines if line["type"] == "train"]
        self.assertEqual(len(trained), 4)
        for line in trained:
            seconds = line["seconds"]
            self.assertGreater(seconds["dense"], 0)
            self.assertLessEqual(sum(value for name, value in seconds.items() if name != "total"),
                                 1.0001 * seconds["total"])
        self.assertEqual(sum(line["tasks"][0]["window_samples"] for line in trained), 1000)
        summary = json.loads((out / "summary.json").read_text())
        self.assertEqual(summary["eval"]["auc"], evals[-1]["auc"])
        for name in ("config.yaml", "plan.yaml"):
            self.assertIn("version: 1", (out / name).read_text())

    def test_out_folder_reproduces_the_run(self):
        first = self.train(self.write(), "--out", "out", ranks=2)
        again = self.train("out/config.yaml", "--plan", "out/plan.yaml", ranks=2)
        self.assert_same_bits(first, again)
        self.assertEqual(first["plan_hash"], again["plan_hash"])

    def test_eval_alone(self):
        summary = self.train(self.write(), command="eval", ranks=2)
        self.assertEqual(summary["steps"], 0)
        self.assertEqual(summary["weights_hash"],
                         self.train("job.yaml", command="eval")["weights_hash"])
        for key in FIGURES:
            self.assertIsNotNone(summary["eval"][key], key)

    def test_quiet_and_plain_lines(self):
        config = self.write()
        self.assertEqual(self.run_weft("train", config, "--quiet").out, "")
        result = self.run_weft("train", config)
        self.assertIn("weights hash", result.out)
        self.assertRegex(result.err, r"step 4/16 .* data \d+ exchange \d+ lookup \d+ dense \d+ ")
        self.assertNotIn("\033", result.out + result.err)
        self.assertNotIn("\r", result.err)

    def test_one_is_singular(self):
        config = self.write()
        for ranks, threads, says in ((1, 1, "on 1 rank of 1 thread)"),
                                     (2, 3, "on 2 ranks of 3 threads)")):
            result = self.run_weft("train", config, "--ranks", ranks, "--threads", threads)
            self.assertIn(says, result.out)
            self.assertIn(f"agreed by {says.split(' of')[0][3:]}:", result.err)

    def test_no_share_of_a_gap_that_has_grown(self):
        result = self.run_weft("train", self.write(values={"train.steps": 1}))
        self.assertRegex(result.out, r"evaluation NE +[1-9]\.")  # so that there is none
        self.assertNotIn("gap closed", result.out)
        self.assertIn("no better yet than predicting the mean", result.out)

    def test_closed_output(self):
        """A reader that has gone is no reason to lose a run."""
        config = self.write()
        process = self.start(["sh", "-c", f"'{self.weft}' train {config} --summary s.json | true"])
        self.wait(process)
        self.assertEqual(self.summary("s.json")["steps"], 16)

    def shell(self, command):
        return self.wait(self.start(["sh", "-c", f"exec '{self.weft}' {command}"]))

    def test_full_output(self):
        """What could not be printed is an error; progress that could not is none."""
        config = self.write()
        for command in (f"train {config}", f"config {config}", f"data stats {config}", "--help"):
            result = self.shell(command + " >/dev/full")
            self.assertEqual(result.code, 1, str(result))
            self.assertIn("No space left", result.err)
        self.assertEqual(self.shell(f"train {config} --summary s.json 2>/dev/full").code, 0)
        self.assertEqual(self.summary("s.json")["steps"], 16)
        self.assertEqual(self.shell("train absent.yaml 2>/dev/full").code, 2)

    def test_closed_streams(self):
        """No file of the job gets the number of a stream that is closed."""
        config = self.write()
        self.assertEqual(self.shell(f"train {config} --out out <&- >&- 2>&-").code, 0)
        out = self.folder / "out"
        for line in (out / "metrics.jsonl").read_text().splitlines():
            json.loads(line)
        self.assert_same_bits(json.loads((out / "summary.json").read_text()),
                              self.train("out/config.yaml"))


class MpiSummary(MpiCase):
    def test_equals_local(self):
        config = self.write()
        local = self.train(config)
        for ranks in (1, 2, 3):
            result = self.wait(self.start(
                self.mpi_command(ranks, "train", config, "--summary", "s.json", "--out", "out")))
            self.assertEqual(result.code, 0, str(result))
            other = self.summary("s.json")
            self.assert_same_bits(local, other, f"{ranks} processes")
            self.assertEqual(other["ranks"], ranks)
            self.assertEqual(local["eval"]["auc"], other["eval"]["auc"])
            self.assertEqual(result.out.count("weights hash"), 1, str(result))

    def test_replica_groups_equal_local(self):
        """Averages beside the next step, over messages; in line, over memory."""
        for sync in ("dense", "touched", "gradients"):
            mesh = {"groups": 2, "sync": sync}
            config = self.write(values={"mesh": mesh, "train.overlap": False})
            local = self.train(config, ranks=4)
            config = self.write(values={"mesh": mesh})
            result = self.wait(self.start(self.mpi_command(
                4, "train", config, "--summary", "s.json")))
            self.assertEqual(result.code, 0, str(result))
            self.assert_same_bits(local, self.summary("s.json"), sync)

    def test_ranks_and_launcher_disagree(self):
        result = self.wait(self.start(
            self.mpi_command(2, "train", self.write(), "--ranks", "3", "--quiet")))
        self.assertEqual(result.code, 2, str(result))
        self.assertIn("--ranks 3 under an MPI launcher that started 2", result.err)

    def test_row_wise_equals_local(self):
        config = self.write(BASE, values={f"tables.{i}.sharding": s for i, s in enumerate(
            ("row_wise", "column_wise", "data_parallel"))})
        result = self.wait(self.start(self.mpi_command(2, "train", config, "--summary", "s.json")))
        self.assertEqual(result.code, 0, str(result))
        self.assert_same_bits(self.train(config, ranks=3), self.summary("s.json"))
