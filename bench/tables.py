#!/usr/bin/env python3
"""Write the tables of a document from the results in a folder.

    bench/tables.py build/bench docs/performance.md

Replaces what stands between "<!-- table NAME -->" and "<!-- end -->" by the table of that name (the
functions table_NAME below); everything else in the document is written by hand. Results of different
machines are refused.
"""
import json
import pathlib
import re
import sys

import peer_tables
import pipeline_tables
import rank_tables
import save_tables
import store_tables
from scaling_tables import (table_growth_agreement, table_growth_alone, table_growth_before,  # noqa: F401  (found by name)
                            table_growth_before_files, table_growth_bytes, table_growth_imitated, table_growth_measured,
                            table_growth_nested, table_growth_predicted, table_growth_processes, table_growth_sync)
from table_text import number, percent, spread, spread_of_ratios, table
from tier_tables import (table_tier_hits, table_tier_kernels, table_tier_ladder,  # noqa: F401  (found by name)
                         table_tier_parts, table_tier_production, table_tier_production_traffic, table_tier_shared,
                         table_tier_traffic)

MARK = re.compile(r"(<!-- table (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


class Results:
    """All figures of a folder, each with its program."""

    def __init__(self, folder):
        files = [json.loads(p.read_text()) for p in sorted(pathlib.Path(folder).glob("*.json"))]
        if not files:
            raise SystemExit(f"tables.py: there is no result in {folder}; run scripts/bench")
        self.files = [f for f in files if "machine" in f]  # of the benchmarks' programs
        self.others = {f["program"]: f for f in files if "machine" not in f}
        machines = {json.dumps(f["machine"], sort_keys=True) for f in self.files}
        if len(machines) > 1:
            raise SystemExit(f"tables.py: {folder} has results of {len(machines)} machines; measure again")
        self.machine = self.files[0]["machine"] if self.files else None

    def software(self, key):
        return ", ".join(sorted({f["software"][key] for f in self.files}))

    def find(self, program, name=None, **parameters):
        """The figures of a program with this name and these parameters, in the order of the files."""
        return [r for f in self.files if f["program"] == program for r in f["results"]
                if (name is None or r["name"] == name)
                and all(r["parameters"].get(k) == v for k, v in parameters.items())]


def table_machine(results):
    m = results.machine
    if m is None:
        return ""
    return table(["", ""], [
        ["CPU", m["cpu"]], ["cores", str(m["cores"])], ["caches of a core", ", ".join(m["cache"])],
        ["extensions", " ".join(m["flags"])], ["memory", f"{m['memory_gib']} GiB"],
        ["transparent huge pages", m["huge_pages"]],
        ["system, compiler", f"{results.software('kernel')}, {results.software('compiler')}"],
        ["oneDNN", results.software("onednn")], ["Weft", results.software("weft")]])


def table_limits(results):
    rows, threads = {}, set()
    for r in results.find("limits"):
        p = dict(r["parameters"])
        threads.add(int(p.pop("threads")))
        label = f"{r['name']} {' '.join(p.values())}".strip().replace("_", " and ")
        rows.setdefault((label, r["unit"]), {})[int(r["parameters"]["threads"])] = spread(r)
    order = sorted(threads)
    return table(["limit", "unit"] + [f"{t} thread{'s' if t > 1 else ''}" for t in order],
                 [[label, unit] + [by.get(t, "-") for t in order] for (label, unit), by in rows.items()])


def natural(text):
    """Sorts numbers in text by their value."""
    return [(0, int(t)) if t.isdigit() else (1, t) for t in re.split(r"(\d+)", text) if t]


def wide_parameter(figures):
    """The parameter with the most values: a table has a column for each."""
    values = {}
    for r in figures:
        for k, v in r["parameters"].items():
            values.setdefault(k, set()).add(v)
    return max(values, key=lambda k: len(values[k]), default=None)


def cell(r):
    """Median, half the distance of the quartiles in percent of it, share of the limit."""
    noise = 50 * (r["q3"] - r["q1"]) / r["median"] if r["median"] else 0
    return f"{number(r['median'])} ±{noise:.0f} %: {percent(r)}"


def kernel_rows(figures, wide):
    rows = {}
    for r in figures:
        others = {k: v for k, v in sorted(r["parameters"].items()) if k != wide}
        label = ", ".join([r["name"]] + [f"{k} {v}".strip() for k, v in others.items()])
        rows.setdefault((label, r["unit"], r["limit"]["name"]), {})[r["parameters"].get(wide, "")] = cell(r)
    return sorted(rows.items(), key=lambda row: natural(row[0][0]))


def table_kernels(results):
    """One table per program, of what has a limit."""
    text = ""
    for program in sorted({f["program"] for f in results.files} - {"limits", "step", "partition", "search", "plan", "overlap", "mesh", "cluster", "scaling", "scaling_mpi", "products"}):
        figures = [r for r in results.find(program) if "limit" in r]
        wide = wide_parameter(figures)
        columns = sorted({r["parameters"].get(wide, "") for r in figures}, key=natural)
        text += f"\n`bench/{program}_bench.cc`:\n\n"
        text += table(["kernel", "unit", "limit"] + [f"{wide or ''} {c}".strip() for c in columns],
                      [[*key] + [by.get(c, "-") for c in columns] for key, by in kernel_rows(figures, wide)])
    return text.lstrip("\n")


def table_products(results):
    """Libraries of products beside each other: the dense layers of a model, by pass and slice."""
    rows, libraries = {}, []
    for r in results.find("products"):
        p = r["parameters"]
        if "layer" in p:
            continue
        if p["library"] not in libraries:
            libraries.append(p["library"])
        rows.setdefault((p["model"], p["pass"], int(p["slice"])), {})[p["library"]] = spread(r)
    libraries.sort(key=natural)
    return table(["model", "pass", "samples"] + [f"{name}, GFLOP/s" for name in libraries],
                 [[model, kind, str(samples)] + [by.get(name, "-") for name in libraries]
                  for (model, kind, samples), by in sorted(rows.items())]) if rows else ""


def where(r):
    p = r["parameters"]
    ranks = "1 rank" if p["ranks"] == "1" else f"{p['ranks']} ranks, {p['backend']}"
    return [p["model"], p["batch"], f"{ranks} x {p['threads']} threads".replace(" 1 threads", " 1 thread")]


def step_order(r):
    p = r["parameters"]
    return (p["model"], int(p["batch"]), int(p["ranks"]), p["backend"], -int(p["threads"]),
            p["variant"].startswith("bf16"), p["variant"])


def table_steps(results):
    rows = []
    for r in sorted(results.find("step", "step"), key=step_order):
        if "one part" in r["parameters"]["variant"]:
            continue
        batch = int(r["parameters"]["batch"])
        limit = r["limit"]["median"]
        rows.append(where(r) + [r["parameters"]["variant"], spread(r), number(1e3 * batch / r["median"]),
                                number(1e3 * batch / limit), f"{limit / r['median']:.2f}"])
    return table(["model", "batch", "ranks", "compute", "samples/s (quartiles)", "step, ms",
                  "sum of limits, ms", "step / sum"], rows)


def table_bf16(results):
    rows = []
    for r in sorted(results.find("step", "step", variant="bf16"), key=step_order):
        same = dict(r["parameters"], variant="fp32")
        rows += [where(r) + [f"{r['median'] / other['median']:.2f}"]
                 for other in results.find("step", "step", **same)]
    return table(["model", "batch", "ranks", "samples/s of bf16 / fp32"], rows)


def share_of_products(results, parameters):
    """The dense model's products alone, as a share of its stages' time."""
    stages = [found for stage in ("forward_backward", "weight_gradients")
              for found in results.find("step", f"part.{stage}", **parameters) if "limit" in found]
    limit = sum(stage["limit"]["median"] for stage in stages)
    return f"{100 * limit / sum(stage['median'] for stage in stages):.0f} %" if stages else "-"


def table_dense(results):
    rows = []
    for r in sorted(results.find("step", "dense", ranks="1"), key=step_order):
        if "one part" in r["parameters"]["variant"]:
            continue
        rows.append(where(r) + [r["parameters"]["variant"], number(r["median"]), percent(r),
                                share_of_products(results, r["parameters"])])
    return table(["model", "batch", "ranks", "compute", "GFLOP/s", "of a large product", "of its own products"],
                 rows)


def parts_of(results, model):
    """What a step is made of, on one rank with all threads: one table per batch."""
    text = ""
    steps = [r for r in sorted(results.find("step", "step_ms", model=model, ranks="1"), key=step_order)]
    most = max((int(r["parameters"]["threads"]) for r in steps), default=0)
    for batch in sorted({int(r["parameters"]["batch"]) for r in steps}):
        chosen = {"model": model, "batch": str(batch), "ranks": "1", "threads": str(most)}
        names = list(dict.fromkeys(r["name"] for r in results.find("step", **chosen)
                                   if r["name"].startswith("part.")))
        rows = []
        for name in names + ["step_ms"]:
            row = ["**step**" if name == "step_ms" else name[len("part."):]]
            for variant in ("fp32", "bf16"):
                found = results.find("step", name, variant=variant, **chosen)
                if not found:
                    row += ["-"] * 3
                    continue
                limit = number(found[0]["limit"]["median"]) if "limit" in found[0] else "-"
                row += [number(found[0]["median"]), limit, percent(found[0])]
            rows.append(row)
        text += (f"\nBatch {batch}, one rank, {most} thread{'s' if most > 1 else ''}; "
                 "`reduce` runs beside others:\n\n")
        text += table(["part", "fp32, ms", "limit", "share", "bf16, ms", "limit", "share"], rows)
    return text.lstrip("\n")


def table_parts_dlrm_kaggle(results):
    return parts_of(results, "dlrm_kaggle")


def table_parts_dcnv2_mlperf(results):
    return parts_of(results, "dcnv2_mlperf")


def table_two_ranks(results):
    """One rank of two threads, and two of one: steps in turns, and where their time goes (bench/two_ranks.py)."""
    document = results.others.get("two_ranks")
    if document is None:
        return ""
    return f"{rank_tables.head(document)}\n\n{table(rank_tables.HEADER, rank_tables.rows(document))}"


def table_price(results):
    rows = [where(r) + [r["parameters"]["variant"].split("/")[0]] +
            [f"{100 * (r[k] - 1):+.1f} %" for k in ("median", "q1", "q3")]
            for r in sorted(results.find("step", "step_ratio"), key=step_order)]
    return table(["model", "batch", "ranks", "compute", "price of 8 parts", "first quartile", "third"], rows)


def table_reader(results):
    rows = []
    for r in results.find("step", "reader"):
        same = dict(r["parameters"])
        for step in sorted(results.find("step", "step", **same), key=step_order):
            waiting = results.find("step", "step_with_reader", **step["parameters"])
            if waiting:
                rows.append([same["model"], same["batch"], step["parameters"]["variant"], spread(r),
                             number(step["median"]), f"{r['median'] / step['median']:.1f}",
                             number(waiting[0]["median"])])
    rows.sort(key=lambda row: (row[0], int(row[1])))
    return table(["model", "batch", "compute", "reader, samples/s", "step, samples/s", "reader / step",
                  "step with the reader beside it"], rows)


ALGORITHMS = ["random", "size", "dim", "lookups", "greedy", "differencing", "best_of"]


def partition_cases(results):
    """Every table set and number of ranks, in the order in which they were measured."""
    return list(dict.fromkeys((r["parameters"]["tables"], r["parameters"]["ranks"])
                              for r in results.find("partition", "max_cost")))


def median_of(results, name, **parameters):
    return results.find("partition", name, **parameters)[0]["median"]


def table_partition(results):
    """Maximum over lower bound of the same items."""
    rows = []
    for tables, ranks in partition_cases(results):
        for items in ("whole", "halved"):
            at = {"tables": tables, "ranks": ranks, "items": items}
            row = [tables, ranks, items, number(median_of(results, "items", algorithm="greedy", **at))]
            for algorithm in ALGORITHMS:
                cost = results.find("partition", "max_cost", algorithm=algorithm, **at)[0]
                row.append(f"{1 / cost['share']:.3f}")
            rows.append(row)
    return table(["tables", "ranks", "items", "how many"] + ALGORITHMS, rows)


def table_halving(results):
    """What halving gives, beside whole tables, and what planning takes."""
    rows = []
    for tables, ranks in partition_cases(results):
        whole = {"tables": tables, "ranks": ranks, "items": "whole", "algorithm": "best_of"}
        halved = {"tables": tables, "ranks": ranks, "items": "halved", "algorithm": "halve_hottest"}
        row = [tables, ranks]
        for name in ("items", "over_ideal", "imbalance", "bytes_imbalance"):
            digits = 0 if name == "items" else 2
            row += [f"{median_of(results, name, **at):,.{digits}f}" for at in (whole, halved)]
        rows.append(row + [f"{median_of(results, 'seconds', **halved):.2f}"])
    return table(["tables", "ranks", "items", "halved", "max / ideal", "halved", "max / mean", "halved",
                  "bytes, max / mean", "halved", "seconds"], rows)


SIMPLE = ["table_wise", "row_wise", "greedy by bytes and lookups"]


def table_search(results):
    """Plans that are searched for, and how much longer a step of simple ones takes."""
    rows = []
    for at in dict.fromkeys((r["parameters"]["tables"], r["parameters"]["ranks"])
                            for r in results.find("search", "seconds")):
        case = dict(zip(("tables", "ranks"), at))
        fits = results.find("search", "fits", **case)[0]["median"] == 1
        row = [*at, "yes" if fits else "no"]
        for name, digits in (("seconds", 2), ("step as scheduled", 2), ("step", 2), ("work", 2), ("bytes", 2)):
            row.append(f"{results.find('search', name, **case)[0]['median']:.{digits}f}")
        row += [f"{results.find('search', f'step of {name}', **case)[0]['median']:.2f}" for name in SIMPLE]
        rows.append(row)
    return table(["tables", "ranks", "fits", "seconds", "step, ms", "of sync, ms", "work, max / mean", "bytes, max / mean"] + SIMPLE, rows)


def table_scaling(results):
    """Predicted steps of one batch on ever more ranks, and of as many samples on each."""
    rows = []
    for at in dict.fromkeys((r["parameters"]["tables"], r["parameters"]["ranks"])
                            for r in results.find("search", "strong step")):
        case = dict(zip(("tables", "ranks"), at))
        row = [*at]
        for kind in ("strong", "weak"):
            found = {name: results.find("search", f"{kind} {name}", **case)[0]["median"]
                     for name in ("samples", "step", "efficiency", "fits")}
            row += [f"{found['samples']:,.0f}", f"{found['step']:.2f}" + ("" if found["fits"] == 1 else " (does not fit)"),
                    f"{found['efficiency']:.2f}"]
        rows.append(row)
    return table(["tables", "ranks", "strong: samples a rank", "step, ms", "of linear",
                  "weak: samples a rank", "step, ms", "of linear"], rows)


def plan_cases(results):
    """Parameters of every case, in the order in which they were measured."""
    return [r["parameters"] for r in results.find("plan", "step")]


def table_predicted(results):
    """Steps as predicted and as measured, and the parts that differ between plans."""
    rows = []
    for case in plan_cases(results):
        row = [case["model"], case["batch"], f"{case['ranks']} x {case['threads']}", case["plan"]]
        step = results.find("plan", "step", **case)[0]
        row += [number(step["limit"]["median"]), number(step["median"]),
                f"{100 * (step['limit']['median'] / step['median'] - 1):+.0f} %"]
        for part in ("lookup", "forward_backward", "update_rows"):
            found = results.find("plan", f"part.{part}", **case)
            row.append(f"{number(found[0]['limit']['median'])} / {number(found[0]['median'])}" if found else "-")
        rows.append(row)
    return table(["model", "batch", "ranks x threads", "plan", "step, predicted ms", "measured", "error",
                  "lookup", "forward_backward", "update_rows"], rows)


CASES = ["all", "looked at", "held out"]


def table_prediction_errors(results):
    """How far off the step, its parts and memory are: all cases, and the medians of both kinds of them."""
    rows = []
    for r in results.find("plan", "error", cases="all"):
        of = r["parameters"]["of"]
        bias = results.find("plan", "bias", of=of, cases="all")[0]
        noise = results.find("plan", "noise", of=of, cases="all")
        size = sum(c["median"] for c in results.find("plan", "step" if of == "step" else f"part.{of}"))
        whole = sum(c["median"] for c in results.find("plan", "step"))
        kinds = [results.find("plan", "error", of=of, cases=cases) for cases in CASES[1:]]
        rows.append([of, f"{100 * size / whole:.0f} %" if size else "-"] +
                    [f"{r[k]:.{0 if size else 1}f} %" for k in ("q1", "median", "q3")] +
                    [f"{bias['median']:+.{0 if size else 1}f} %"] +
                    [f"{k[0]['median']:.{0 if size else 1}f} %" if k else "-" for k in kinds] +
                    [f"{noise[0]['median']:.0f} %" if noise else "-"])
    return table(["of", "share of all steps", "error, first quartile", "median", "third", "median with its sign",
                  "median, looked at", "held out", "rounds apart"], rows)


def table_predicted_schedules(results):
    """Steps of the same plan under all schedules, as predicted and as measured, and against those of sync."""
    rows = []
    for r in results.find("plan", "schedule"):
        case = r["parameters"]
        sync = results.find("plan", "schedule", **dict(case, schedule="sync", plan="table_wise, sync"))[0]
        rows.append([case["model"], case["batch"], f"{case['ranks']} x {case['threads']}", case["schedule"],
                     number(r["limit"]["median"]), number(r["median"]),
                     f"{100 * (r['limit']['median'] / r['median'] - 1):+.0f} %",
                     f"{r['limit']['median'] / sync['limit']['median']:.2f}",
                     f"{r['median'] / sync['median']:.2f}"])
    return table(["model", "batch", "ranks x threads", "schedule", "step, predicted ms", "measured", "error",
                  "of sync, predicted", "measured"], rows) if rows else ""


def table_prediction_order(results):
    """Whether what is predicted to be faster is."""
    names = {("rank_correlation", "all"): "rank correlation of steps",
             ("rank_correlation", "within"): "the same within a model and batch, median",
             ("slowest_over_fastest", "within"): "slowest over fastest step of a model and batch, median",
             ("pairs_right", "0 % apart"): "pairs of a model and batch ordered rightly",
             ("pairs_right", "5 % apart"): "of those that are 5 % apart",
             ("pairs_right", "20 % apart"): "of those that are 20 % apart"}
    rows = [[label] + [f"{found[0]['median']:.2f}" if found else "-"
                       for found in (results.find("plan", name, of=of, cases=cases) for cases in CASES)]
            for (name, of), label in names.items()]
    return table([""] + CASES, rows) if results.find("plan") else ""


def table_mesh(results):
    """What replica groups cost a rank, counted and by formula."""
    rows = []
    for case in (r["parameters"] for r in results.find("mesh", "tables")):
        row = [f"{case['groups']} x {case['ranks']}", "-" if case["sync"] == "none" else case["sync"]]
        for name in ("tables", "beside", "beside_ratio", "peers", "all_to_all", "imbalance", "sync"):
            found = results.find("mesh", name, **case)
            if not found:
                row.append("-")
                continue
            counted = found[0]["median"]
            digits = 2 if name in ("beside_ratio", "imbalance") else 0 if counted >= 1000 or name == "peers" else 1
            row.append(" / ".join(f"{value:,.{digits}f}" for value in
                                  (counted, found[0].get("limit", {"median": 0.0})["median"])))
        rows.append(row)
    return table(["groups x ranks", "sync", "tables, MB / S/N", "beside, MB", "of one group", "peers",
                  "all-to-all, kB/step", "imbalance", "sync, kB"], rows)


LINK = 25e9  # bits per second, at which saved bytes are shown as time


def table_cluster(results):
    """Partial gradients of a fetched table by micro-batches, in the order of the data and clustered."""
    rows = []
    for r in results.find("cluster", "cluster"):
        def both(name, n):
            return [results.find("cluster", name, order=order, micro_batches=n, **r["parameters"])[0]
                    for order in ("plain", "clustered")]

        if not results.find("cluster", "first_rows", micro_batches="32", **r["parameters"]):
            continue
        once = both("partial_gradients", "8")[0]["limit"]["median"]
        row = [r["parameters"]["data"], r["parameters"]["samples"], f"{once / 2**20:.1f}"]
        for n in ("2", "8", "32"):
            row.append(" / ".join(f"{one['median'] / once:.2f}" for one in both("partial_gradients", n)))
        row.append(" / ".join(f"{100 * one['median'] / once:.0f} %" for one in both("first_rows", "8")))
        plain, clustered = (one["median"] for one in both("partial_gradients", "8"))
        rows.append(row + [f"{1e3 * 8 * (plain - clustered) / LINK:.2f}", f"{r['median'] / 1e3:.1f}"])
    return table(["ids of a sample", "samples", "once, MiB", "N = 2", "N = 8", "N = 32", "first of 8",
                  "N = 8: less, ms", "clustering, ms"], rows)


def table_ladder(results):
    """Efficiency and a step's parts of every rung on every topology (lab/ladder.py)."""
    rows = []
    for r in results.others.get("ladder", {"rungs": []})["rungs"]:
        slow, free = r["shaped"], r["free"]
        rows.append([r["rung"], f"{r['hosts']} x {r['ranks']}",
                     f"{100 * r['efficiency']:.0f} % ({100 * r['efficiency_least']:.0f} to "
                     f"{100 * r['efficiency_most']:.0f})", f"{slow['step_ms']:.0f}", f"{free['step_ms']:.0f}",
                     f"{slow['compute_ms']:.0f}", f"{slow['raw_ms']:.0f}", f"{slow['exposed_ms']:.0f}",
                     f"{slow['cross_host_bytes'] / 1e6:.2f}", f"{slow['interface_bytes'] / 1e6:.2f}",
                     "-" if r["formula_bytes"] is None else f"{r['formula_bytes'] / 1e6:.2f}"])
    return table(["rung", "hosts x ranks", "efficiency", "step, ms", "links not shaped", "compute",
                  "communication", "of it exposed", "MB by count", "by interface", "by formula"], rows)


def table_ladder_beside(results):
    """Step times of two builds on every rung, and the ratio of the rounds (lab/beside.py)."""
    return table(["rung", "hosts x ranks", "links shaped: step, ms", "before", "ratio", "not shaped: step, ms", "before",
                  "ratio"],
                 [[r["rung"], f"{r['hosts']} x {r['ranks']}", *(cell for state in (r["shaped"], r["free"]) for cell in (
                     f"{state['step_ms']:.0f}", f"{state['beside_ms']:.0f}", spread_of_ratios(state["ratios"])))]
                  for r in results.others.get("ladder_beside", {"beside": []})["beside"]])


def table_schedules(results):
    """What each schedule loses to the links, a table for each of their rates (lab/pipeline.yaml)."""
    return "\n".join(f"{line}\n\n{table(header, rows)}" for line, header, rows in
                     pipeline_tables.schedules(results.others.get("pipeline", {})))


def table_schedule_idle(results):
    """Steps of nested against those of sync where links take nothing (scripts/pipeline idle)."""
    rows = []
    for r in results.find("pipeline_idle", "step_ratio"):
        steps = [results.find("pipeline_idle", "step_ms", **{**r["parameters"], "variant": v})[0]["median"]
                 for v in ("sync", "nested")]
        rows.append([r["parameters"]["ranks"], *(number(step) for step in steps),
                     *(f"{100 * (r[k] - 1):+.1f} %" for k in ("median", "q1", "q3"))])
    return table(["ranks", "sync, ms", "nested, ms", "nested against sync", "first quartile", "third"], rows)


def table_schedule_square(results):
    """Steps of the schedules on more and more hosts, and what they are made of (lab/pipeline_square.yaml)."""
    lines, header, rows = pipeline_tables.square(results.others.get("pipeline_square", {}))
    return f"{lines}\n\n{table(header, rows)}" if rows else ""


def table_store_reads(results):
    """Rows of a step gathered from a disk."""
    return table(*store_tables.reads(results))


def table_store_appends(results):
    return table(*store_tables.appends(results))


def table_store_changes(results):
    return table(*store_tables.changes(results))


def table_store_sizes(results):
    return table(*store_tables.sizes(results))


def table_save_rows(results):
    return table(*save_tables.saves(results))


def table_save_background(results):
    return table(*save_tables.background(results))


def table_save_on_disk(results):
    return table(*save_tables.on_disk(results))


def table_save_chains(results):
    return table(*save_tables.chains(results))


def table_peers(results):
    """Weft beside TorchRec and PyTorch (bench/peers)."""
    document = results.others.get("peers")
    return f"{peer_tables.head(document)}\n\n{table(*peer_tables.compared(document))}" if document else ""


def table_peers_parts(results):
    """Where Weft's steps went in the same turns."""
    document = results.others.get("peers")
    return table(*peer_tables.parts(document)) if document else ""


def quality_rows(results, program, digits):
    """Data set, variant, NE, its change and its spread over seeds, and the first variant's spread."""
    rows = []
    for r in results.others.get(program, {"quality": []})["quality"]:
        low, high = min(r["ne_change"]), max(r["ne_change"])
        mean = sum(r["ne"]) / len(r["ne"])
        rows.append([r["dataset"], r["variant"], f"{mean:.{digits}f}", f"{r['ne_change_mean']:+.{digits}f}",
                     f"{low:+.{digits}f} to {high:+.{digits}f}", f"{r['ne_seed_spread']:.{digits}f}"])
    return rows


def table_quality(results):
    """Normalised entropy of every variant over seeds (bench/quality.yaml)."""
    return table(["data", "variant", "NE", "change, mean over seeds", "least to most", "fp32's seeds differ by"],
                 quality_rows(results, "quality", 4))


def table_quality_2d(results):
    """The same of replica groups (bench/quality_2d.yaml)."""
    return table(["data", "variant", "NE", "change, mean over seeds", "least to most", "1D's seeds differ by"],
                 quality_rows(results, "quality_2d", 4))


def rewrite(text, results):
    """The document with its tables made anew; those without results stay. Raises KeyError for a
    table nobody makes."""
    def made(match):
        fresh = globals()[f"table_{match[2]}"](results)
        return match[1] + fresh + match[3] if fresh else match[0]

    return MARK.sub(made, text)


def main():
    if len(sys.argv) != 3:
        raise SystemExit(__doc__)
    document = pathlib.Path(sys.argv[2])
    text = document.read_text()
    made = rewrite(text, Results(sys.argv[1]))
    document.write_text(made)
    print(f"{document}: {len(MARK.findall(text))} tables {'changed' if made != text else 'are as they were'}")


if __name__ == "__main__":
    main()
