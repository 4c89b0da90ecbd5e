#!/usr/bin/env python3
"""bench/compare.py, bench/tables.py and what they call, on small results."""
import copy
import json
import pathlib
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "bench"))
import tables  # noqa: E402
import tier_jobs  # noqa: E402
import tier_tables  # noqa: E402
import two_ranks  # noqa: E402

MACHINE = {"cpu": "X", "cores": 2, "cache": ["L1 32K"], "flags": ["avx2"], "memory_gib": 8, "huge_pages": "madvise"}
SOFTWARE = {"kernel": "Linux 1", "compiler": "gcc 12", "onednn": "2.6", "weft": "0.1"}


def figure(name, values, better="higher", limit=None, **parameters):
    low, median, high = values
    result = {"name": name, "parameters": parameters, "unit": "rows/s", "better": better, "repetitions": 5,
              "median": median, "min": low, "max": high, "q1": low, "q3": high}
    if limit:
        result["limit"] = {"name": "gather", "repetitions": 5, "median": limit, "q1": limit, "q3": limit}
        result["share"] = median / limit
    return result


def results(*figures, program="kernels"):
    return {"format": 1, "program": program, "machine": MACHINE, "software": SOFTWARE, "results": list(figures)}


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)

    def write(self, name, result):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(json.dumps(result))
        return path


class Compare(Folder):
    def compare(self, old, new):
        run = subprocess.run([sys.executable, ROOT / "bench/compare.py", self.write("old.json", old),
                              self.write("new.json", new)], capture_output=True, text=True)
        return run.returncode, run.stdout, run.stderr

    def test_says_what_is_beyond_the_noise(self):
        old = results(figure("a", (90, 100, 110)), figure("b", (90, 100, 110)), figure("gone", (1, 1, 1)))
        new = results(figure("a", (105, 115, 125)), figure("b", (190, 200, 210)), figure("fresh", (1, 1, 1)))
        code, out, err = self.compare(old, new)
        self.assertEqual((code, err), (0, ""))
        self.assertIn("a: 100 -> 115 rows/s, x1.150 +-0.200\n", out)
        self.assertIn("b: 100 -> 200 rows/s, x2.000 +-0.200 faster\n", out)
        self.assertIn("fresh: new", out)
        self.assertIn("gone: gone", out)

    def test_knows_which_way_is_better(self):
        code, out, _ = self.compare(results(figure("time", (9, 10, 11), better="lower")),
                                    results(figure("time", (19, 20, 21), better="lower")))
        self.assertEqual(code, 0)
        self.assertIn("slower", out)

    def test_parameters_tell_figures_apart(self):
        old = results(figure("a", (9, 10, 11), dim="16"), figure("a", (90, 100, 110), dim="64"))
        _, out, _ = self.compare(old, old)
        self.assertIn("a dim=16: 10 -> 10", out)
        self.assertIn("a dim=64: 100 -> 100", out)

    def test_shows_how_the_limit_moved(self):
        _, out, _ = self.compare(results(figure("a", (49, 50, 51), limit=100)),
                                 results(figure("a", (24, 25, 26), limit=50)))
        self.assertIn("share 50.0 -> 50.0 %, limit x0.500", out)

    def test_refuses_another_machine(self):
        other = copy.deepcopy(results(figure("a", (9, 10, 11))))
        other["machine"]["cores"] = 4
        code, out, err = self.compare(results(figure("a", (9, 10, 11))), other)
        self.assertEqual((code, out), (2, ""))
        self.assertIn("different machines", err)
        self.assertIn("cores: 2", err)
        self.assertIn("4", err)

    def test_refuses_another_program_and_format(self):
        one = results(figure("a", (9, 10, 11)))
        self.assertEqual(self.compare(one, dict(one, program="step"))[0], 2)
        self.assertEqual(self.compare(one, dict(one, format=2))[0], 2)

    def test_other_software_is_said_and_compared(self):
        code, out, _ = self.compare(results(figure("a", (9, 10, 11))),
                                    dict(results(figure("a", (9, 10, 11))), software=dict(SOFTWARE, weft="0.2")))
        self.assertEqual(code, 0)
        self.assertIn("# weft: 0.1 -> 0.2", out)

    def test_a_file_that_is_no_result(self):
        path = self.folder / "bad.json"
        path.write_text("{")
        run = subprocess.run([sys.executable, ROOT / "bench/compare.py", path, path], capture_output=True, text=True)
        self.assertEqual(run.returncode, 1)
        self.assertIn("cannot read", run.stderr)

    def test_folders(self):
        for name in ("old/x.json", "new/x.json"):
            self.write(name, results(figure("a", (9, 10, 11))))
        run = subprocess.run([sys.executable, ROOT / "bench/compare.py", self.folder / "old", self.folder / "new"],
                             capture_output=True, text=True)
        self.assertEqual(run.returncode, 0)
        self.assertIn("a: 10 -> 10", run.stdout)


class Tables(Folder):
    def test_replaces_what_is_between_the_marks(self):
        self.write("k.json", results(figure("lookup", (9, 10, 11), limit=20, dim="16")))
        text = "before\n<!-- table kernels -->\nold\n<!-- end -->\nafter\n"
        made = tables.rewrite(text, tables.Results(self.folder))
        self.assertIn("| lookup | rows/s | gather | 10 ±10 %: 50 % |", made)
        self.assertNotIn("old", made)
        self.assertTrue(made.startswith("before\n") and made.endswith("after\n"))
        self.assertEqual(tables.rewrite(made, tables.Results(self.folder)), made)

    def test_libraries_of_products(self):
        at = {"model": "dlrm_kaggle", "pass": "inputs", "slice": "64"}
        self.write("p.json", results(figure("products", (100, 100, 100), library="Weft", **at),
                                     figure("products", (90, 90, 90), library="libxsmm 1.17", **at),
                                     figure("products", (5, 5, 5), library="Weft", layer="top.0", **at),
                                     figure("products", (80, 80, 80), library="Weft", **dict(at, slice="128")),
                                     program="products"))
        made = tables.table_products(tables.Results(self.folder))
        self.assertIn("| Weft, GFLOP/s | libxsmm 1.17, GFLOP/s |", made)
        self.assertIn("| dlrm_kaggle | inputs | 64 | 100 (100 to 100) | 90 (90 to 90) |", made)
        self.assertIn("| dlrm_kaggle | inputs | 128 | 80 (80 to 80) | - |", made)
        self.assertNotIn("top.0", made)

    def test_steps_and_their_parts(self):
        at = {"model": "dlrm_kaggle", "batch": "2048", "ranks": "1", "threads": "2", "backend": "local", "parts": "8"}
        figures = []
        for variant, speed in (("fp32", 1000), ("bf16", 4000)):
            here = dict(at, variant=variant)
            figures += [figure("step", (speed, speed, speed), limit=2 * speed, **here),
                        figure("step_ms", (8, 8, 8), better="lower", limit=4, **here),
                        figure("part.lookup", (3, 3, 3), better="lower", limit=1.5, **here)]
        self.write("step.json", results(*figures, program="step"))
        result = tables.Results(self.folder)
        self.assertIn("| fp32 | 1,000 (1,000 to 1,000) | 2,048 | 1,024 | 2.00 |", tables.table_steps(result))
        self.assertIn("| 1 rank x 2 threads | 4.00 |", tables.table_bf16(result))
        self.assertIn("| lookup | 3 | 1.5 |", tables.table_parts_dlrm_kaggle(result))

    def test_share_of_the_dense_products(self):
        at = {"model": "dlrm_kaggle", "batch": "2048", "ranks": "1", "threads": "2", "backend": "local", "variant": "fp32"}
        self.write("step.json", results(
            figure("dense", (100, 100, 100), limit=200, **at),
            figure("part.forward_backward", (6, 6, 6), better="lower", limit=5, **at),
            figure("part.weight_gradients", (4, 4, 4), better="lower", limit=2, **at), program="step"))
        self.assertIn("| fp32 | 100 | 50 % | 70 % |", tables.table_dense(tables.Results(self.folder)))

    def test_two_ranks_beside_two_threads(self):
        turns = {shape: [{"step_ms": ms, "forward_backward": 5, "weight_gradients": 2, "exchange_ids": 1, "reduce": 9}
                         for ms in steps] for shape, steps in {"1 x 2": (10, 20, 10), "mpi": (11, 24, 9)}.items()}
        case = two_ranks.summary("dlrm_kaggle/2048/fp32", turns)
        self.assertEqual([shape["ratios"] for shape in case["shapes"]], [[1, 1, 1], [1.1, 1.2, 0.9]])
        self.write("two_ranks.json", {"version": 1, "program": "two_ranks", "cpu": "X", "rounds": 3, "cases": [case]})
        made = tables.table_two_ranks(tables.Results(self.folder))
        self.assertTrue(made.startswith("X; 3 rounds.\n"))
        self.assertIn("| dlrm_kaggle | 2048 | fp32 | 1 rank x 2 threads | 10 | - | 7 | 1 |", made)
        self.assertIn("| 2 ranks, mpi x 1 thread | 11 | 1.10 (0.90 to 1.20) | 7 | 1 |", made)

    def test_partitions(self):
        figures = []
        for items, count in (("whole", 26), ("halved", 1300)):
            for algorithm in tables.ALGORITHMS + ["halve_hottest"]:
                at = {"tables": "x", "ranks": "8", "items": items, "algorithm": algorithm}
                figures += [figure("max_cost", (6, 6, 6), better="lower", limit=6, **at),
                            figure("items", (count, count, count), **at)]
                figures[-2]["share"] = 0.5
                figures += [figure(name, (2, 2, 2), **at)
                            for name in ("over_ideal", "imbalance", "bytes_imbalance", "seconds")]
        self.write("p.json", results(*figures, program="partition"))
        result = tables.Results(self.folder)
        self.assertIn("| x | 8 | whole | 26 |" + " 2.000 |" * 7, tables.table_partition(result))
        self.assertIn("| x | 8 | 26 | 1,300 | 2.00 |", tables.table_halving(result))
        self.assertEqual(tables.table_kernels(result), "")

    def test_clusters(self):
        at = {"data": "x", "samples": "512", "parts": "32"}
        figures = [figure("cluster", (1500, 1500, 1500), better="lower", **at)]
        for n in ("2", "8", "32"):
            for order, share in (("plain", 4), ("clustered", 2)):
                figures += [figure("partial_gradients", (share * 2**20,) * 3, better="lower", limit=2**20,
                                   micro_batches=n, order=order, **at),
                            figure("first_rows", (share * 2**18,) * 3, better="lower", micro_batches=n,
                                   order=order, **at)]
        self.write("c.json", results(*figures, program="cluster"))
        result = tables.Results(self.folder)
        self.assertIn("| x | 512 | 1.0 |" + " 4.00 / 2.00 |" * 3 + " 100 % / 50 % | 0.67 | 1.5 |",
                      tables.table_cluster(result))
        self.assertEqual(tables.table_kernels(result), "")

    def test_search(self):
        at = {"tables": "x", "ranks": "8"}
        names = ["seconds", "step as scheduled", "step", "work", "bytes"] + [f"step of {name}" for name in tables.SIMPLE]
        self.write("s.json", results(figure("fits", (1, 1, 1), **at),
                                     *(figure(name, (2, 2, 2), **at) for name in names),
                                     program="search"))
        self.assertIn("| x | 8 | yes |" + " 2.00 |" * 8, tables.table_search(tables.Results(self.folder)))

    def test_scaling(self):
        figures = []
        for ranks, fits in (("128", 1), ("256", 0)):
            at = {"tables": "x", "ranks": ranks}
            for kind in ("strong", "weak"):
                figures += [figure(f"{kind} {name}", (2, 2, 2), **at) for name in ("step", "samples", "efficiency")]
                figures.append(figure(f"{kind} fits", (fits,) * 3, **at))
        self.write("s.json", results(*figures, program="search"))
        made = tables.table_scaling(tables.Results(self.folder))
        self.assertIn("| x | 128 | 2 | 2.00 | 2.00 | 2 | 2.00 | 2.00 |", made)
        self.assertIn("| x | 256 | 2 | 2.00 (does not fit) | 2.00 | 2 | 2.00 (does not fit) | 2.00 |", made)

    def test_growth(self):
        figures = []
        for schedule in ("sync", "nested", "predicted"):
            for ranks, messages in (("8", 7), ("64", 22)):
                at = {"tables": "x", "ranks": ranks, "schedule": schedule}
                figures += [figure(name, (value,) * 3, better="lower", **at) for name, value in (
                    ("messages.exchange_counts", messages), ("bytes.exchange_counts", 3e6), ("messages", 9 * messages),
                    ("bytes.exchange_report", 1e6), ("step", 4), ("start", 5), ("memory", 6e6), ("plan", 2e6))]
        self.write("s.json", results(*figures, program="scaling"))
        result = tables.Results(self.folder)
        self.assertIn("| x | 64 | 22 | - | - | - | - | - | - | 198 |", tables.table_growth_sync(result))
        self.assertEqual(tables.table_growth_sync(result), tables.table_growth_nested(result))
        self.assertEqual(tables.table_growth_sync(result), tables.table_growth_predicted(result))
        self.assertIn("| x | 8 | nested | 4 | - | 5 | 6 | - | 4,000 |", tables.table_growth_measured(result))
        self.assertIn("| x | 64 | 4 | 2 | - | - |", tables.table_growth_bytes(result))
        self.assertEqual(tables.table_kernels(result), "")

    def growth(self, schedule, messages, **parameters):
        at = {"tables": "x", "ranks": "64", "schedule": schedule, **parameters}
        return [figure(name, (value,) * 3, better="lower", **at) for name, value in (
            ("messages", messages), ("bytes", 2e6), ("step", 4), ("library", 3), ("start", 5), ("memory", 6e6),
            ("heap", 7e6))]

    def test_growth_of_imitated_ranks_and_processes(self):
        self.write("s.json", results(*self.growth("sync", 22), *self.growth("real sync", 23, cut="even"),
                                     *self.growth("imitated sync", 24, cut="even"),
                                     figure("alone", (1, 1, 1), better="lower", tables="x", ranks="64", cut="even",
                                            schedule="imitated sync"),
                                     figure("alone.lookup", (2, 2, 2), better="lower", tables="x", ranks="64", cut="even",
                                            schedule="imitated sync"), program="scaling"))
        self.write("t.json", results(*self.growth("sync", 25), program="scaling_mpi"))
        result = tables.Results(self.folder)
        self.assertIn("| x | even | 64 | sync | 24 | 2 | 1 | 3 | 5 | 6 | 7 |", tables.table_growth_imitated(result))
        self.assertIn("| x | even | sync | - | - | 2 | - | - | - | - | - |", tables.table_growth_alone(result))
        self.assertIn("| x | even | 64 | sync | 24 / 23 | 2,000 / 2,000 | 3 / 3 | 6 / 6 | 7 / 7 |",
                      tables.table_growth_agreement(result))
        self.assertIn("| x | 64 | sync | 25 / 22 | 2,000,000 / 2,000,000 | 4 | 3 | 5 | 6 | 7 |",
                      tables.table_growth_processes(result))
        self.assertEqual(tables.table_kernels(result), "")

    def test_growth_before(self):
        counted = {"messages": 567.0, "bytes": 2e6, "step_ms": 20.0, "ends_s": 0.25, "resident": 5e7}
        self.write("b.json", {"program": "scaling_before", "jobs": [
            {"tables": "26 tables", "schedule": "sync", "form": "auto", "ranks": 64, "before": counted,
             "now": {**counted, "messages": 126.0, "step_ms": 10.0}}],
            "files": [{"tables": "26 tables", "ranks": 64, "before": {"plan": 83000, "manifest": 2e6, "seconds": 12},
                       "now": {"plan": 5100, "manifest": 60900, "seconds": 4.5}}]})
        self.assertIn("| 26 tables | sync | auto | 64 | 567 / 126 | 2,000 / 2,000 | 20 / 10 | 0.25 / 0.25 | 50 / 50 |",
                      tables.table_growth_before(tables.Results(self.folder)))
        self.assertIn("| 26 tables | 64 | 83 / 5.1 | 2,000 / 60.9 | 12 / 4.5 |",
                      tables.table_growth_before_files(tables.Results(self.folder)))

    def test_mesh(self):
        figures = []
        for groups, sync in (("1", "none"), ("8", "dense")):
            at = {"groups": groups, "ranks": str(8 // int(groups)), "sync": sync}
            figures += [figure(name, (2, 2, 2), better="lower", limit=4, **at)
                        for name in ("tables", "beside", "beside_ratio", "imbalance")]
            alone = groups == "8"  # a rank in a group of its own has no peers
            figures += [figure(name, (0, 0, 0), better="lower", **at) if alone else
                        figure(name, (7, 7, 7), better="lower", limit=7, **at)
                        for name in ("peers", "all_to_all")]
            figures += [figure("sync", (5000, 5000, 5000), better="lower", limit=4999.6, **at)] if alone else []
        self.write("m.json", results(*figures, program="mesh"))
        result = tables.Results(self.folder)
        made = tables.table_mesh(result)
        self.assertIn("| 1 x 8 | - | 2.0 / 4.0 | 2.0 / 4.0 | 2.00 / 4.00 | 7 / 7 | 7.0 / 7.0 | 2.00 / 4.00 | - |", made)
        self.assertIn("| 8 x 1 | dense | 2.0 / 4.0 | 2.0 / 4.0 | 2.00 / 4.00 | 0 / 0 | 0.0 / 0.0 | 2.00 / 4.00 "
                      "| 5,000 / 5,000 |", made)
        self.assertEqual(tables.table_kernels(result), "")

    def test_quality(self):
        self.write("q.json", {"version": 1, "program": "quality_2d", "quality": [
            {"dataset": "made up", "variant": "M = 2", "ne": [0.5, 0.7], "ne_change": [-0.1, 0.3],
             "ne_change_mean": 0.1, "ne_seed_spread": 0.2}]})
        made = tables.Results(self.folder)
        self.assertIn("| made up | M = 2 | 0.6000 | +0.1000 | -0.1000 to +0.3000 | 0.2000 |",
                      tables.table_quality_2d(made))
        self.assertEqual(tables.table_quality(made), "")

    def rung(self, name, shaped, free, *settings, hosts=2):
        """Steps and what of them the trace has exposed, in ms."""
        kinds = {kind: {"step_ms": step, "exposed_ms": exposed, "compute_ms": step - exposed}
                 for kind, (step, exposed) in (("shaped", shaped), ("free", free))}
        options = [word for setting in settings for word in ("--set", setting)]
        return {"rung": name, "options": options, "hosts": hosts, "ranks": 1, "rate_mbit": 50, **kinds}

    def schedules(self, program, **changes):
        nested = ("pipeline.schedule=nested", "pipeline.micro_batches=4")
        rungs = [self.rung("exchange alone", (120, 110), (20, 10)), self.rung("compute alone", (130, 9), (130, 5)),
                 self.rung("sync", (230, 104), (130, 4)), self.rung("nested, 4", (160, 33), (130, 3), *nested),
                 self.rung("cuts", (160, 33), (130, 3), nested[0], "pipeline.micro_batches=[1, 2, 2]"),
                 self.rung("many", (190, 23), (130, 3), nested[0], "pipeline.micro_batches=16")]
        floors = [{"hosts": 2, "rate_mbit": 50, "floor_ms": 12, "floor_share": 0.1, "lost_ms": 9}]
        self.write("p.json", {"version": 1, "program": program, "rungs": rungs, "floors": floors, **changes})
        return tables.Results(self.folder)

    def test_schedules(self):
        made = tables.table_schedules(self.schedules("pipeline"))
        self.assertIn("2 hosts, 50 Mbit/s: R = 100 ms, C = 125 ms, R/C = 0.80; the floor is 12 ms, to which "
                      "shaping adds 9 ms.\n\n| schedule |", made)
        self.assertIn("| exchange alone | 120 | 20 | 100 | 100 % | - | 110 | 100 % | - | - |", made)
        self.assertIn("| sync | 230 | 130 | 100 | 100 % | 88 % | 104 | 100 % | - | - |", made)
        self.assertIn("| nested, 4 | 160 | 130 | 30 | 30 % | 18 % | 33 | 30 % | 25 % | 12 % |", made)
        self.assertIn("| cuts | 160 | 130 | 30 | 30 % | 18 % | 33 | 30 % | 33 % | 10 % |", made)
        self.assertIn("| many | 190 | 130 | 60 | - | 8 % by the trace | 23 | 20 % | 6 % | 3 % |", made)
        self.assertEqual(tables.table_schedule_square(tables.Results(self.folder)), "")

    def test_schedule_square(self):
        one = [self.rung("compute alone", (126, 0), (125, 0), hosts=1), self.rung("sync", (128, 0), (128, 0), hosts=1)]
        rungs = self.schedules("pipeline_square").others["pipeline_square"]["rungs"]
        made = tables.table_schedule_square(self.schedules("pipeline_square", rungs=one + rungs))
        self.assertIn("- 1 host, 50 Mbit/s: nothing to exchange, C = 125 ms.\n- 2 hosts, 50 Mbit/s: R = 100 ms", made)
        self.assertIn("| 1 | sync | 128 | 125 | 0 | 125 | -2.3 % | 128 | - | - | - | - | - |", made)
        self.assertIn("| 2 | sync | 230 | 125 | 104 | 229 | -0.4 % | 126 | 100 | - | 100 % | 88 % | - |", made)
        self.assertIn("| 2 | nested, 4 | 160 | 125 | 33 | 158 | -1.2 % | 127 | 30 | 70 % | 30 % | 18 % | 12 % |", made)
        self.assertNotIn("alone", made.partition("| hosts |")[2])

    def test_tier_hits(self):
        figures = []
        for schedule in ("sync", "prefetch"):
            for tier, time in (("dense", 2), ("lazy", 3), ("ssd", 4)):
                at = {"variant": f"{tier} {schedule}", "zipf": "1.05"}
                names = ["step_ms", "sparse_ms", *(f"part.{part}" for part in tier_tables.PARTS)]
                figures += [figure(name, (time,) * 3, better="lower", **at) for name in names]
                if tier != "dense":
                    at["variant"] += f"/dense {schedule}"
                    figures += [figure(name, (1, time / 2, 3), better="lower", **at)
                                for name in ("step_ratio", "sparse_ratio")]
                    figures.append(figure("misses", (0, 0, 0), variant=f"{tier} {schedule}", zipf="1.05"))
        self.write("h.json", results(*figures, program="tiers_hits"))
        self.write("c.json", results(figure("fetch", (60, 60.5, 61), ids="uniform", ways="8"), program="tiers_cache"))
        result = tables.Results(self.folder)
        made = tables.table_tier_hits(result)
        self.assertIn("| Zipf 1.05 | sync | dense | 2.00 | - | 2.00 | - | - | - | - |", made)
        self.assertIn("| Zipf 1.05 | prefetch | ssd | 4.00 | 2.00 | 4.00 | 2.00 | 1.00 | 3.00 | 0 |", made)
        self.assertIn("| Zipf 1.05 | sync | lazy |" + " 3.00 |" * 7, tables.table_tier_parts(result))
        self.assertIn("|  | uniform, 8 ways |", tables.table_tier_kernels(result))
        self.assertIn("| fetch | 60.5 |", tables.table_tier_kernels(result))
        self.assertEqual(tables.table_tier_ladder(result) + tables.table_tier_traffic(result), "")

    def tier_job(self, cache_mib, schedule, step_ms, state_hash="a", **more):
        job = {"law": 0.8, "cache_mib": cache_mib, "schedule": schedule, "space_factor": 1.5, "warm_steps": 9,
               "step_ms": step_ms, "last_step": 9, "state_hash": state_hash, "peak_bytes": 200 * 2**20,
               "fetch_ms": 50, "exposed_fetch_ms": 40, "reads_per_s": 5e4, "reads_before": 4e4, "reads_after": 6e4}
        if cache_mib:
            job.update(asked=4000, hits=1000, read=3000, made=0, late=0, written_back=2000, stored=1000, moved=500,
                       read_bytes=2500 * 4096)
        return {**job, **more}

    def test_ladder_beside(self):
        state = {"step_ms": 200.4, "beside_ms": 190, "ratios": [1.0, 1.1]}
        self.write("l.json", {"version": 1, "program": "ladder_beside", "rungs": [], "floors": [], "beside": [
            {"rung": "+ codecs", "hosts": 4, "ranks": 2, "rate_mbit": 280, "shaped": state,
             "free": {"step_ms": 9, "beside_ms": 10, "ratios": [0.9]}}]})
        made = tables.table_ladder_beside(tables.Results(self.folder))
        self.assertIn("| + codecs | 4 x 2 | 200 | 190 | 1.05 (1.00 to 1.10) | 9 | 10 | 0.90 |", made)

    def test_tier_ladder(self):
        jobs = [self.tier_job(0, "sync", 40), self.tier_job(0, "dbp", 30), self.tier_job(64, "sync", 100),
                self.tier_job(64, "dbp", 66, exposed_fetch_ms=10)]
        document = {"version": 1, "program": "tiers_ladder", "limit": "cgroup", "limit_bytes": 250 * 2**20,
                    "table_bytes": 1000 * 2**20, "tables": 1, "row_bytes": 516, "jobs": jobs}
        self.write("l.json", document)
        result = tables.Results(self.folder)
        made = tables.table_tier_ladder(result)
        self.assertIn("A table of 1000 MiB with the optimizer's state, a job that may use 250 MiB (cgroup), which is 4.0 times", made)
        self.assertIn("2 jobs ended, 2 of them at the step of one all in memory, all with its state hash", made)
        self.assertIn("| Zipf 0.8 | 64 | 6.4 % | sync | 25.0 % | 3,000 | 2,500 | 40.0 | 50.0 | 1.25 | 100.0 | 2.00 |", made)
        self.assertIn("| Zipf 0.8 | 64 | 6.4 % | dbp | 25.0 % | 3,000 | 2,500 | 30.0 | 50.0 | 1.67 | 66.0 | 1.32 |", made)
        made = tables.table_tier_traffic(result)
        self.assertIn("| dbp | 4,000 | 3,000 | 0 | 0 | 2,000 | 1,000 | 500 | 10.2 | 0.8 | 50.0 | 10.0 | 25 % |", made)
        self.write("p.json", {**document, "program": "tiers_production", "tables": 856,
                              "jobs": [{**job, "law": "production"} for job in jobs]})
        result = tables.Results(self.folder)
        made = tables.table_tier_production(result)
        self.assertIn("856 tables of 1000 MiB with", made)
        self.assertIn("| 856 tables | 64 | 6.4 % | sync | 25.0 % | 3,000 | 2,500 |", made)
        self.assertIn("| 856 tables | 64 | dbp | 4,000 | 3,000 |", tables.table_tier_production_traffic(result))
        jobs[3]["state_hash"] = "b"
        self.write("l.json", document)
        self.assertIn("NOT ALL WITH ITS STATE HASH", tables.table_tier_ladder(tables.Results(self.folder)))

    def test_shared_caches(self):
        def job(cache_mib, division, misses, state_hash="a"):
            tables = {name: {"cache_bytes": 2**20, "predicted": misses + 1, "asked": 100, "hits": 100 - misses, "read": 0,
                             "made": 0} for name in ("user", "item")}
            return {"cache_mib": cache_mib, "policy": "lfu", "division": division, "tables": tables,
                    "state_hash": state_hash}

        document = {"version": 1, "program": "tiers_shared_caches",
                    "jobs": [job(size, division, misses) for size in (24, 48, 96)
                             for division, misses in (("bytes", 40), ("curves", 10))]}
        self.write("s.json", document)
        made = tables.table_tier_shared(tables.Results(self.folder))
        self.assertIn("| 24 | lfu | all | 2.0 | 60.0 % | 80 | 82 | 2.0 | 90.0 % | 20 | 22 | 0.25 |", made)
        self.assertIn("| 48 | lfu | item | 1.0 | 60.0 % | 40 | 41 | 1.0 | 90.0 % | 10 | 11 | 0.25 |", made)
        self.assertNotIn("| 24 | lfu | item |", made)
        document["jobs"][1] = job(24, "curves", 10, "b")
        self.write("s.json", document)
        with self.assertRaises(SystemExit):
            tables.table_tier_shared(tables.Results(self.folder))

    def test_trace_of_a_tier(self):
        """Two steps of 10 ms; in each 4 ms of fetch, 1 of them beside a lookup and 1 beside a wait."""
        events = []
        for begin in (0, 10000):
            events.append({"ph": "X", "cat": "user_annotation", "name": "ProfilerStep#1", "ts": begin, "dur": 10000})
            events += [{"ph": "X", "cat": "kernel", "name": name, "ts": begin + at, "dur": length}
                       for name, at, length in (("fetch", 1000, 4000), ("lookup", 4000, 3000), ("wait", 2000, 1000))]
            events.append({"ph": "C", "name": "rows of tiers read", "ts": begin, "args": {"value": begin / 10}})
        trace = tier_jobs.Trace(self.write("trace.json", {"traceEvents": events}))
        self.assertEqual((trace.steps, trace.step_ms, trace.part_ms("fetch"), trace.exposed_ms("fetch")), (2, 10, 4, 3))
        self.assertEqual((trace.per_step("rows of tiers read"), trace.per_step("none")), (1000, None))

    def test_refuses_results_of_two_machines(self):
        self.write("a.json", results(figure("a", (1, 1, 1))))
        self.write("b.json", dict(results(figure("a", (1, 1, 1))), machine=dict(MACHINE, cores=8)))
        with self.assertRaises(SystemExit):
            tables.Results(self.folder)

    def test_every_table_of_the_document_can_be_made(self):
        self.write("k.json", results(figure("a", (1, 1, 1))))
        text = (ROOT / "docs/performance.md").read_text()
        self.assertGreater(len(tables.MARK.findall(text)), 5)
        tables.rewrite(text, tables.Results(self.folder))
        text = (ROOT / "docs/2d.md").read_text()
        self.assertIn("<!-- table mesh -->", text)
        self.assertEqual(tables.rewrite(text, tables.Results(self.folder)), text)

    def test_tables_without_results_stay(self):
        self.write("k.json", results(figure("a", (1, 1, 1))))
        text = (ROOT / "docs/planner.md").read_text()
        self.assertEqual(tables.rewrite(text, tables.Results(self.folder)), text)


if __name__ == "__main__":
    unittest.main()
