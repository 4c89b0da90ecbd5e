#!/usr/bin/env python3
"""Compare two results of the benchmarks: files, or folders of files with equal names.

    bench/compare.py OLD NEW

Prints new over old for every figure in both, with "faster" or "slower" where the quartiles of the
two do not overlap, and how far the machine's own limit has moved meanwhile: on a shared machine look
at the share of the limit before the figure. Exit code 2 where the machines differ, since a ratio
would then say nothing about Weft; 1 for files that cannot be read.
"""
import argparse
import json
import pathlib
import sys

FORMAT = 1


class Refusal(Exception):
    """Why two results may not be compared."""


def load(path):
    result = json.loads(pathlib.Path(path).read_text())
    if result.get("format") != FORMAT:
        raise Refusal(f"{path}: format {result.get('format')}; this script knows format {FORMAT}")
    return result


def key(result):
    return result["name"], tuple(sorted(result["parameters"].items()))


def check_comparable(old, new, names):
    """Raises Refusal unless both come from one kind of machine and one program."""
    if old["program"] != new["program"]:
        raise Refusal(f"{names[0]} is of '{old['program']}' and {names[1]} of '{new['program']}'")
    differing = [k for k in sorted(old["machine"].keys() | new["machine"].keys())
                 if old["machine"].get(k) != new["machine"].get(k)]
    if differing:
        lines = [f"  {k}: {old['machine'].get(k)}\n  {' ' * len(k)}  {new['machine'].get(k)}" for k in differing]
        raise Refusal(f"{names[0]} and {names[1]} were measured on different machines:\n" + "\n".join(lines) +
                      "\nMeasure both on one machine.")


def verdict(old, new):
    """'' within the noise, otherwise faster or slower."""
    if old["q1"] <= new["q3"] and new["q1"] <= old["q3"]:
        return ""
    grew = new["median"] > old["median"]
    return "faster" if grew == (old["better"] == "higher") else "slower"


def text_of(result):
    return " ".join([result["name"]] + [f"{k}={v}" for k, v in sorted(result["parameters"].items())])


def compare(old, new):
    """Lines of text, one per figure."""
    before = {key(r): r for r in old["results"]}
    after = {key(r): r for r in new["results"]}
    for name, b in after.items():
        a = before.get(name)
        if a is None:
            yield f"{text_of(b)}: new"
            continue
        scale = b["median"] / a["median"] if a["median"] else float("inf")
        spread = max(r["q3"] - r["q1"] for r in (a, b)) / a["median"] if a["median"] else 0.0
        line = (f"{text_of(b)}: {a['median']:.5g} -> {b['median']:.5g} {b['unit']}, "
                f"x{scale:.3f} +-{spread:.3f} {verdict(a, b)}").rstrip()
        if "share" in a and "share" in b:
            limit = b["limit"]["median"] / a["limit"]["median"]
            line += f"; share {100 * a['share']:.1f} -> {100 * b['share']:.1f} %, limit x{limit:.3f}"
        yield line
    for name, a in before.items():
        if name not in after:
            yield f"{text_of(a)}: gone"


def pairs(old, new):
    old, new = pathlib.Path(old), pathlib.Path(new)
    if not old.is_dir():
        return [(old, new)]
    names = sorted(p.name for p in old.glob("*.json") if (new / p.name).exists())
    if not names:
        raise Refusal(f"{old} and {new} have no file name in common")
    return [(old / name, new / name) for name in names]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    arguments = parser.parse_args()
    try:
        for a, b in pairs(arguments.old, arguments.new):
            old, new = load(a), load(b)
            check_comparable(old, new, (a, b))
            for name in sorted(old["software"]):
                if old["software"][name] != new["software"].get(name):
                    print(f"# {name}: {old['software'][name]} -> {new['software'].get(name)}")
            print("\n".join(compare(old, new)))
    except Refusal as refusal:
        print(f"compare.py: {refusal}", file=sys.stderr)
        return 2
    except (OSError, ValueError, KeyError) as error:
        print(f"compare.py: cannot read the results: {error!r}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
