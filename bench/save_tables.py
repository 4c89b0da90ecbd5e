"""The tables of checkpoints by the rows that have changed (docs/tiers.md), from what save_bench measures: headers and
rows, of which tables.py makes text."""


def seconds(value):
    return f"{value:.3f}"


def with_quartiles(result):
    return f"{seconds(result['median'])} ({seconds(result['q1'])} to {seconds(result['q3'])})"


def saves(results):
    rows = []
    for save in results.find("save", "save_s"):
        written = results.find("save", "save_bytes", **save["parameters"])[0]
        rows.append([save["parameters"]["what"], f"{int(save['parameters']['changed']):,}",
                     f"{written['median'] / 1e6:.1f}", with_quartiles(save), with_quartiles(save["limit"])])
    return ["saved", "rows", "MB", "s", "a file of as many bytes, written and synced, s"], rows


def background(results):
    names = {"background_total_s": "written, s", "background_cut_s": "the cut, s",
             "background_updates_s": "ten updates waited, s", "background_copy_bytes": "most copies, MB",
             "step_alone_s": "a step alone, ms", "step_beside_s": "beside the save, ms",
             "step_beside_longest_s": "the longest, ms"}
    rows = []
    for total in results.find("save", "background_total_s"):
        row = [total["parameters"]["what"]]
        for name in names:
            value = results.find("save", name, **total["parameters"])[0]["median"]
            row.append(f"{value / 1e6:.1f}" if name.endswith("bytes") else
                       f"{value * 1e3:.1f}" if name.startswith("step") else seconds(value))
        rows.append(row)
    return ["saved", *names.values()], rows


def on_disk(results):
    rows = []
    for linked in results.find("save", "disk_save_s", how="linked"):
        row = [linked["parameters"]["what"], f"{int(linked['parameters']['changed']):,}"]
        for how in ["copied", "linked"]:
            of = {**linked["parameters"], "how": how}
            megabytes = [results.find("save", f"disk_save_{name}_bytes", **of)[0]["median"] / 1e6
                         for name in ["written", "named"]]
            row += [f"{megabytes[0]:.1f}", f"{megabytes[1]:.1f}",
                    with_quartiles(results.find("save", "disk_save_s", **of)[0])]
        rows.append(row)
    return ["saved", "rows changed since the save before", "copied: MB written", "MB named", "s", "linked: MB written",
            "MB named", "s"], rows


def chains(results):
    return ["saves in the chain", "loaded, s"], [[load["parameters"]["chain"], with_quartiles(load)]
                                                 for load in results.find("save", "load_s")]
