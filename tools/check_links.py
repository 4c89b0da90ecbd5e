#!/usr/bin/env python3
"""Fail when a document names what is not there.

In every Markdown file of the repository: relative links and their #anchors; and, like in sources and
scripts, names of files such as weft/base/parts.h or `tests/comm`, which must exist. `*` is a
wildcard and NAME stands for anything; what a build makes is not looked for.
"""
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
TOP = ("weft", "cli", "tests", "tools", "docs", "scripts", "examples", "cmake", "bench", r"\.ci")
# A name in backticks may be a folder; elsewhere only what has the look of a file counts.
QUOTED = re.compile(r"`((?:" + "|".join(TOP) + r")/[\w./*-]*)`")
PLAIN = re.compile(r"(?<![\w./-])((?:" + "|".join(TOP) + r")/[\w./*-]+\.(?:md|h|cc|cu|in|py|sh|txt|yaml|json|supp|cmake))\b")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
SUFFIXES = {".md", ".h", ".cc", ".cu", ".py", ".sh", ".yaml", ".cmake", ".txt"}


def anchors(path):
    """The #fragments of a document, as GitHub makes them from headings."""
    found = set()
    for heading in re.findall(r"^#+\s+(.*)$", FENCE.sub("", path.read_text()), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        slug = re.sub(r"[^\w\s-]", "", text).strip().replace(" ", "-")
        number = 0
        while (slug if number == 0 else f"{slug}-{number}") in found:
            number += 1
        found.add(slug if number == 0 else f"{slug}-{number}")
    return found


def check_links(path, text, faults):
    for target in LINK.findall(FENCE.sub("", text)):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, fragment = target.partition("#")
        file = (path.parent / name).resolve() if name else path
        if not file.exists():
            faults.append(f"{path.relative_to(ROOT)}: link to {target}, which is not there")
        elif fragment and file.suffix == ".md" and fragment not in anchors(file):
            faults.append(f"{path.relative_to(ROOT)}: link to {target}, which has no such heading")


def check_names(path, text, faults):
    names = set(PLAIN.findall(text))
    if path.suffix == ".md":
        names |= set(QUOTED.findall(text))
    for name in sorted(names):
        pattern = re.sub(r"\bNAME\b|NAME(?=_)|\bNNNN\b", "*", name.rstrip("/."))
        if not any(ROOT.glob(pattern)):
            faults.append(f"{path.relative_to(ROOT)}: names {name}, which is not there")


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout.splitlines()
    paths = [ROOT / name for name in listed]
    paths = [p for p in paths if p.is_file() and (p.suffix in SUFFIXES or p.parent == ROOT / "scripts")]
    faults = []
    documents = 0
    for path in paths:
        text = path.read_text()
        if path.suffix == ".md":
            check_links(path, text, faults)
            documents += 1
        check_names(path, text, faults)
    print("\n".join(faults) or f"{documents} documents and {len(paths) - documents} other files name what is there")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
