"""Traces: what their files say, and that they change nothing."""

import json
import shutil

from harness import BASE, Case, MpiCase, with_values

PARTS = ("exchange_counts", "exchange_ids", "load", "lookup", "output_dist", "forward_backward",
         "exchange_report", "coalesce", "grad_dist", "update_rows", "update_dense")
# Steps of some milliseconds, so that what lies between the parts is little.
LARGER = {"batch_size": 2048, "data.synthetic.samples": 60000, "model.top_mlp": [256, 128],
          "train.steps": 24, "train.eval_every": 0}


def events(trace, category):
    return [event for event in trace["traceEvents"] if event.get("cat") == category]


def covered(spans):
    """Seconds in which at least one of the spans runs."""
    total, end = 0.0, float("-inf")
    for span in sorted(spans, key=lambda span: span["ts"]):
        begin, stop = span["ts"], span["ts"] + span["dur"]
        total += max(0.0, stop - max(begin, end))
        end = max(end, stop)
    return total


class TraceChecks:
    def traces(self, folder, ranks):
        """The files of a trace, by rank."""
        names = sorted(path.name for path in (self.folder / folder).iterdir())
        self.assertEqual(names, [f"trace-{rank:05}.json" for rank in range(ranks)])
        found = [json.loads((self.folder / folder / name).read_text()) for name in names]
        for rank, trace in enumerate(found):
            self.assertEqual(trace["distributedInfo"]["rank"], rank)
            self.assertEqual(trace["distributedInfo"]["world_size"], ranks)
            self.assertEqual(trace["weft"]["dropped"], 0)
        return found

    def check_steps(self, trace, steps):
        """Every step once, with all its parts, which do not overlap on a stream."""
        found = events(trace, "user_annotation")
        self.assertEqual([event["name"] for event in found],
                         [f"ProfilerStep#{step}" for step in steps])
        spans = events(trace, "cpu_op")
        for part in PARTS:
            self.assertEqual(sum(span["name"] == part for span in spans), len(steps), part)
        kernels = events(trace, "kernel")
        for row in {kernel["tid"] for kernel in kernels}:
            end = float("-inf")
            for kernel in kernels:
                if kernel["tid"] == row:
                    self.assertGreaterEqual(kernel["ts"], end - 0.0011, "thousandths are rounded")
                    end = kernel["ts"] + kernel["dur"]

    def check_collectives(self, traces):
        """A collective of one rank is there on all, with bytes that the receivers account for."""
        seen = []
        for trace in traces:
            found = {}
            for span in events(trace, "cpu_op"):
                arguments = span["args"]
                if "Seq" in arguments:
                    key = (arguments["Process Group Name"], arguments["Seq"])
                    self.assertNotIn(key, found)
                    found[key] = span
                    self.assertLessEqual(span["ts"] - 0.001, arguments["arrived"])
                    self.assertLessEqual(arguments["arrived"],
                                         span["ts"] + span["dur"] + 0.002)
                    self.assertEqual(arguments["Group size"], len(traces))
            seen.append(found)
        for found in seen[1:]:
            self.assertEqual(found.keys(), seen[0].keys())
        return seen


class Trace(Case, TraceChecks):
    def test_parts_of_a_step(self):
        config = self.write(with_values(BASE, LARGER))
        self.train(config, "--trace", "trace", "--threads", 1, ranks=2)
        traces = self.traces("trace", 2)
        for trace in traces:
            self.check_steps(trace, range(11, 21))
            # A loaded machine stops threads between spans too; bench/ says how little that is.
            steps = sum(step["dur"] for step in events(trace, "user_annotation"))
            named = covered(events(trace, "cpu_op"))
            self.assertLess(named, 1.0001 * (steps + 1000))
            self.assertGreater(named, 0.4 * steps)
        self.check_collectives(traces)

    def test_changes_no_bit(self):
        config = self.write()
        plain = self.train(config, ranks=2)
        traced = self.train(config, "--trace", "trace", "--trace-steps", "1:16", ranks=2)
        self.assert_same_bits(plain, traced)
        for trace in self.traces("trace", 2):
            self.check_steps(trace, range(1, 17))

    def test_counters_of_tiers(self):
        """What the summary says of tables in tiers is what has grown from step to step."""
        config = self.write(values={"tables.0.memory": {"tier": "lazy"}, "train.eval_every": 0})
        summary = self.train(config, "--trace", "trace", "--trace-steps", "1:16")
        table, = summary["tiers"]["tables"]
        trace, = self.traces("trace", 1)

        def counter(name):
            return [event["args"]["value"] for event in trace["traceEvents"]
                    if event["ph"] == "C" and event["name"] == f"rows of tiers {name}"]

        asked, hit, made = counter("asked for"), counter("hit"), counter("made")
        self.assertEqual((len(asked), asked[0]), (16, 0))
        self.assertEqual(asked, sorted(asked))
        self.assertLess(0, asked[1])
        self.assertEqual(asked, [sum(both) for both in zip(hit, made)])
        self.assertLess(asked[-1], table["rows_asked"])
        self.assertEqual(counter("read"), [0] * 16)
        self.train(self.write(), "--trace", "trace")
        self.assertNotIn("rows of tiers", (self.folder / "trace/trace-00000.json").read_text())

    def test_of_fewer_ranks_replaces_all_files(self):
        config = self.write()
        self.train(config, "--trace", "trace", "--trace-steps", "2:3", ranks=3)
        self.traces("trace", 3)
        self.train(config, "--trace", "trace", "--trace-steps", "2:3", ranks=1)
        self.traces("trace", 1)

    def test_job_that_ends_within_the_steps(self):
        config = self.write(values={"train.steps": 6})
        self.train(config, "--trace", "trace", "--trace-steps", "5:50")
        self.check_steps(self.traces("trace", 1)[0], (5, 6))

    def test_job_that_ends_before_the_steps(self):
        config = self.write(values={"train.steps": 6})
        result = self.run_weft("train", config, "--trace", "trace")
        self.assertIn("no step was recorded; the job's last step is 6", result.err)
        self.assertEqual(list((self.folder / "trace").iterdir()), [])

    def test_files_are_of_ranks_of_the_world(self):
        """Replica groups of every other rank: ranks 0 and 1 have place 0, which holds table a."""
        places = {f"tables.{table}.rank": place for table, place in enumerate((0, 1, 1))}
        config = self.write(values={"mesh": {"groups": 2, "layout": "local_all_reduce"}, **places})
        self.train(config, "--trace", "trace", "--trace-steps", "2:3", ranks=4)
        for rank, trace in enumerate(self.traces("trace", 4)):
            held = [table["table"] for table in trace["weft"]["tables"]]
            self.assertEqual(held, ["a"] if rank < 2 else ["b", "c"], f"rank {rank}")

    def test_resumed_job_counts_on(self):
        config = self.write(values={"train.steps": 8})
        self.train(config, "--checkpoint", "ck")
        config = self.write(values={"train.steps": 16})
        self.train(config, "--resume", "ck", "--trace", "trace", "--trace-steps", "10:11")
        self.check_steps(self.traces("trace", 1)[0], (10, 11))

    def report(self, folder):
        return json.loads(self.run_weft("trace", "report", folder, "--json").out)

    def test_report(self):
        """Two ranks, of which one looks up the larger tables."""
        config = self.write(with_values(BASE, LARGER))
        self.train(config, "--trace", "trace", "--threads", 1, ranks=2)
        report = self.report("trace")
        self.assertEqual(report["steps"], 10)
        self.assertEqual(len(report["ranks"]), 2)
        for rank in report["ranks"]:
            parts = sum(rank[key] for key in ("compute", "lookup", "moving", "waiting", "other",
                                              "idle"))
            self.assertAlmostEqual(parts, rank["step"], delta=0.01 * rank["step"])
            self.assertGreater(rank["compute"], 0)
        names = {part["name"] for part in report["parts"]}
        self.assertTrue({"forward_backward", "lookup", "exchange_ids: all_to_all",
                         "reduce: all_to_all"} & names, names)
        # From the last rank's end to the beginning of another, which may have begun later.
        self.assertAlmostEqual(sum(share["seconds"] for share in report["path"]),
                               report["mean"]["step"], delta=0.5 * report["mean"]["step"])
        self.run_weft("trace", "report", "trace", "--html", "page.html")
        self.assertIn("Breakdown per rank", (self.folder / "page.html").read_text())
        self.refused(1, "trace", "report", "trace", "--html", "absent/page.html",
                     says="absent/page.html")
        text = self.run_weft("trace", "report", "trace").out
        for heading in ("Where a step goes", "Who is waited for", "Critical path", "at least"):
            self.assertIn(heading, text)
        self.assertTrue(all(len(line) <= 120 for line in text.splitlines()), text)

    def test_report_of_replica_groups(self):
        """Averages run on into the next step: moments still add up, and they are a part by name."""
        values = {"mesh": {"groups": 2, "sync": "dense", "sync_every": 2}}
        config = self.write(with_values(BASE, dict(LARGER, **values)))
        self.train(config, "--trace", "trace", "--threads", 1, ranks=4)
        for trace in self.traces("trace", 4):
            self.check_steps(trace, range(11, 21))
            rows = {event["tid"]: event["args"]["name"] for event in trace["traceEvents"]
                    if event["name"] == "thread_name"}
            syncs = [span for span in events(trace, "cpu_op") if span["name"] == "sync_replicas"]
            self.assertEqual([span["args"]["step"] for span in syncs], [12, 14, 16, 18, 20])
            self.assertEqual({rows[span["tid"]] for span in syncs}, {"sync"})
        report = self.report("trace")
        for rank in report["ranks"]:
            parts = sum(rank[key] for key in ("compute", "lookup", "moving", "waiting", "other",
                                              "idle"))
            self.assertAlmostEqual(parts, rank["step"], delta=0.01 * rank["step"])
        self.assertTrue(any(part["name"].startswith("sync_replicas: ")
                            for part in report["parts"]), report["parts"])

    def test_names_the_skewed_table(self):
        """One table has long bags; its rank reads more than the others, and the report says why."""
        values = dict(LARGER, **{"data.synthetic.columns.2.min_length": 30,
                                 "data.synthetic.columns.2.max_length": 50})
        for table, rank in enumerate((0, 1, 1)):
            values[f"tables.{table}.sharding"] = "table_wise"
            values[f"tables.{table}.rank"] = rank
        config = self.write(with_values(BASE, values))
        self.train(config, "--trace", "trace", "--threads", 1, ranks=2)
        report = self.report("trace")
        named = [finding["name"] for finding in report["findings"]
                 if finding["kind"] == "skewed_table"]
        self.assertEqual(named, ["c"])
        first = report["tables"][0]
        self.assertEqual((first["table"], first["rank"]), ("c", 1))
        self.assertTrue(30 * 2048 <= first["rows"] <= 50 * 2048, first)
        self.assertEqual(first["bytes"], first["rows"] * 32 * 4)
        lookup = next(part for part in report["parts"] if part["name"] == "lookup")
        self.assertGreater(lookup["seconds"][1], lookup["seconds"][0])
        self.assertIn("! table c is ", self.run_weft("trace", "report", "trace").out)
        # Short bags, and the tables spread evenly.
        for column in ("min_length", "max_length"):
            values[f"data.synthetic.columns.2.{column}"] = 1
        config = self.write(with_values(BASE, dict(values, **{
            "tables.1.sharding": "data_parallel", "tables.1.rank": -1})))
        self.train(config, "--trace", "even", "--threads", 1, ranks=2)
        self.assertNotIn("skewed_table",
                         [finding["kind"] for finding in self.report("even")["findings"]])

    def test_diff_names_what_became_slower(self):
        """Five times the dense model: the difference is in forward_backward."""
        values = dict(LARGER, **{"train.overlap": False})
        self.train(self.write(with_values(BASE, values)), "--trace", "before", "--threads", 1)
        values["model.top_mlp"] = [1024, 512, 256]
        self.train(self.write(with_values(BASE, values)), "--trace", "after", "--threads", 1)
        found = json.loads(self.run_weft("trace", "diff", "before", "after", "--json").out)
        self.assertEqual(found["parts"][0]["name"], "forward_backward")
        self.assertGreater(found["parts"][0]["after"], found["parts"][0]["before"])
        self.assertIn("forward_backward", self.run_weft("trace", "diff", "before", "after").out)

    def test_report_of_what_is_no_trace(self):
        (self.folder / "empty").mkdir()
        self.refused(1, "trace", "report", "empty", says=("empty holds no trace",))
        self.refused(1, "trace", "report", "absent", says=("absent holds no trace",))
        (self.folder / "empty" / "trace-00000.json").write_text("{}")
        self.refused(3, "trace", "report", "empty", says=("trace-00000.json is no trace",))
        self.run_weft("trace", code=2)

    def test_bad_arguments(self):
        config = self.write()
        for steps in ("5", "5:", ":5", "0:3", "5:4", "a:b", "1:2:3", "1:99999999999999999999"):
            self.refused(2, "train", config, "--trace", "trace", "--trace-steps", steps,
                         says=(f"--trace-steps {steps}", "FIRST:LAST"))
        self.refused(2, "train", config, "--trace-steps", "1:2", says="needs --trace")
        (self.folder / "file").write_text("")
        self.refused(1, "train", config, "--trace", "file/inside", says=("file/inside",))
        self.assertFalse((self.folder / "trace").exists())

    def test_holistic_trace_analysis(self):
        """What HTA makes of it; skipped where it is not installed."""
        try:
            from hta.trace_analysis import TraceAnalysis
        except ImportError:
            self.skipTest("Holistic Trace Analysis is not installed")
        config = self.write(with_values(BASE, LARGER))
        self.train(config, "--trace", "trace", "--threads", 1, ranks=2)
        analysis = TraceAnalysis(trace_dir=str(self.folder / "trace"))
        breakdown = analysis.get_temporal_breakdown(visualize=False)
        self.assertEqual(sorted(breakdown["rank"]), [0, 1])
        self.assertTrue((breakdown["compute_time_pctg"] > 0).all())
        self.assertTrue((breakdown["non_compute_time_pctg"] > 0).all())
        overlap = analysis.get_comm_comp_overlap(visualize=False)
        self.assertEqual(sorted(overlap["rank"]), [0, 1])


    def test_trace_processor(self):
        """What Perfetto's trace processor makes of it; skipped where it is not installed."""
        processor = shutil.which("trace_processor_shell") or shutil.which("trace_processor")
        if processor is None:
            self.skipTest("Perfetto's trace processor is not installed")
        self.train(self.write(with_values(BASE, LARGER)), "--trace", "trace", ranks=2)
        query = self.folder / "query.sql"
        query.write_text("select count(*) from slice where name = 'lookup' and category = 'cpu_op'")
        for path in sorted((self.folder / "trace").iterdir()):
            result = self.wait(self.start([processor, "--query-file", query, path]))
            self.assertEqual(result.code, 0, str(result))
            self.assertEqual(result.out.split()[-1], "10", str(result))


class MpiTrace(MpiCase, TraceChecks):
    def test_equals_local(self):
        config = self.write()
        local = self.train(config, ranks=3)
        command = self.mpi_command(3, "train", config, "--quiet", "--summary", "mpi.json",
                                   "--trace", "trace", "--trace-steps", "3:6")
        result = self.wait(self.start(command))
        self.assertEqual(result.code, 0, str(result))
        self.assert_same_bits(local, self.summary("mpi.json"))
        traces = self.traces("trace", 3)
        for trace in traces:
            self.check_steps(trace, range(3, 7))
            self.assertEqual(trace["distributedInfo"]["backend"], "mpi")
            self.assertEqual(trace["weft"]["clock_offset_ns"], 0, "one host has one clock")
        collectives = self.check_collectives(traces)
        for spans in zip(*(found.values() for found in collectives)):
            begin = max(span["ts"] for span in spans)
            for span in spans:
                self.assertEqual(span["args"]["cross_host_bytes"], 0, "one host")
                # Nobody has a peer's message before the peer has begun.
                if span["name"] != "broadcast":
                    self.assertGreaterEqual(span["args"]["arrived"] + 0.002, begin)
