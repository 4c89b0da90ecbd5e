#!/usr/bin/env python3
"""Fail when a module of weft/ includes a module that tools/layers.txt does not allow it,
or when a file outside its backend folder includes a backend's header."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]weft/([a-z_]+)/', re.MULTILINE)
BACKENDS = {
    r'<mpi\.h>': ("weft/comm/mpi/",),
    r'<nccl\.h>': ("weft/comm/nccl/",),
    r'<(cuda|cub/)[^>]*>': ("weft/tensor/cuda/", "weft/kernels/cuda/"),
}
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}


def read_layers(faults):
    allowed = {}
    for line in (ROOT / "tools/layers.txt").read_text().splitlines():
        line = line.split("#")[0].strip()
        if not line:
            continue
        module, _, deps = line.partition(":")
        faults += [f"layers.txt: {module} names {d}, which is not above it"
                   for d in deps.split() if d not in allowed]
        allowed[module.strip()] = set(deps.split())
    return allowed


def main():
    faults = []
    allowed = read_layers(faults)
    files = sorted(p for p in (ROOT / "weft").rglob("*") if p.suffix in SUFFIXES)
    for path in files:
        name = str(path.relative_to(ROOT))
        module = path.relative_to(ROOT / "weft").parts[0]
        text = path.read_text()
        if module not in allowed:
            faults.append(f"{name}: module {module} has no line in tools/layers.txt")
            continue
        for used in sorted(set(INCLUDE.findall(text)) - {module} - allowed[module]):
            faults.append(f"{name}: {module} may not include weft/{used}/")
        for header, homes in BACKENDS.items():
            if re.search(r'^\s*#\s*include\s*' + header, text, re.MULTILINE):
                if not name.startswith(homes):
                    faults.append(f"{name}: {header} belongs in {' or '.join(homes)}")
        if re.search(r'std::(cout|cerr)|\bprintf\(|\bexit\(', text):
            faults.append(f"{name}: nothing in weft/ prints or exits")
    print("\n".join(faults) or f"{len(files)} files keep to tools/layers.txt")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
