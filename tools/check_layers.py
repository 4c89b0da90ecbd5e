#!/usr/bin/env python3
"""Fail when a module of weft/ includes a module that tools/layers.txt does not allow it, when a file
outside its backend folder includes a backend's header, or when one outside kernels/ loops over a device's
memory on the host: uses the pool, indexes rows by a stride, or calls the CPU's kernels on host pointers. What does
so today and is not host memory by its nature is in tools/host_loops.txt, and a line there that is no longer needed
is a fault too."""
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
INCLUDE = re.compile(r'^\s*#\s*include\s*[<"]weft/([a-z_]+)/', re.MULTILINE)
BACKENDS = {
    r'<mpi\.h>': ("weft/comm/mpi/",),
    r'<nccl\.h>': ("weft/comm/nccl/",),
    r'<(cuda|cub/)[^>]*>': ("weft/tensor/cuda/", "weft/kernels/cuda/"),
    r'"weft/kernels/(cpu|reference|no_cuda)/[^"]*"': ("weft/kernels/",),
}
SUFFIXES = {".h", ".cc", ".cu", ".cuh"}
CPU_KERNEL = re.compile(r'#\s*include\s*"weft/kernels/cpu/')
STAGE_POOL = re.compile(r'\bctx\.pool\b|\brun_blocks\(')  # of a stage, which has a device
ANY_POOL = re.compile(r'\bparallel_for\(')
# A row times a stride: rows of a store, or of a matrix on a device.
ROW_INDEX = re.compile(r'[A-Za-z_)\]]\s*\*\s*[A-Za-z_.>()-]*stride\b|stride\)?\s*\*\s*[A-Za-z_(]')
# Work on host memory: pools and devices themselves, kernels, data, messages.
HOST_MEMORY = ("weft/base/", "weft/tensor/", "weft/kernels/", "weft/data/", "weft/comm/",
               "weft/train/compute_probe.cc")
# Work on ids in host memory, with the pool of their stage (docs/adr/0005-ids-in-host-memory.md), and lists of rows.
HOST_IDS = ("weft/sharding/input_dist.cc", "weft/sharding/id_lanes.cc", "weft/sharding/id_packer.cc",
            "weft/sharding/id_receiver.cc", "weft/sharding/owned_rows.cc", "weft/sharding/task_list.h", "weft/sharding/touched_rows.cc",
            "weft/embedding/written_rows.cc")
# Work on such ids with a pool that they are given, and list jobs over vectors.
ID_PATHS = ("weft/sharding/paths/",)
# Works on state that it gets and gives in host memory (weft/tensor/state.h), and holds no memory of a device. One
# kernel is of host memory: that of hashes.
HOST_STATE = ("weft/checkpoint/",)
DEVICE_BUFFER = re.compile(r'#\s*include\s*"weft/(tensor/(buffer|view)|kernels/(?!element_hash)[a-z_]+)\.h"')
# Index rows: the store that lays them out, and the operations on them; the cost model counts their bytes.
ROW_OWNERS = HOST_MEMORY + ("weft/storage/", "weft/layout/", "weft/cost/")


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


def read_host_loops():
    lines = (ROOT / "tools/host_loops.txt").read_text().splitlines()
    return {line.split("#")[0].strip() for line in lines if line.split("#")[0].strip()}


def loops_on_host(name, text):
    """Whether a file does what belongs into an operation of kernels/."""
    code = re.sub(r"//[^\n]*", "", text)
    if name.startswith("weft/kernels/"):
        return False
    rules = [CPU_KERNEL]
    if not name.startswith(ROW_OWNERS):
        rules.append(ROW_INDEX)
    if name.startswith(HOST_STATE):
        rules.append(DEVICE_BUFFER)
    elif not name.startswith(HOST_MEMORY + HOST_IDS):
        rules.append(STAGE_POOL)
        if not name.startswith(ID_PATHS):
            rules.append(ANY_POOL)
    return any(rule.search(code) for rule in rules)


def main():
    faults = []
    allowed = read_layers(faults)
    loops = read_host_loops()
    listed = set(loops)
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
                # A file in the list of host loops may still call the CPU's kernels.
                if not name.startswith(homes) and not ("kernels/" in header and name in listed):
                    faults.append(f"{name}: {header} belongs in {' or '.join(homes)}")
        if loops_on_host(name, text) != (name in loops):
            faults.append(f"{name}: its line in tools/host_loops.txt is no longer needed" if name in loops else
                          f"{name}: loops over a device's memory belong in kernels/ (HACKING.md, A kernel)")
        loops.discard(name)
        if re.search(r'std::(cout|cerr)|\bprintf\(|\bexit\(', text):
            faults.append(f"{name}: nothing in weft/ prints or exits")
    faults += [f"tools/host_loops.txt: {name} does not exist" for name in sorted(loops)]
    print("\n".join(faults) or f"{len(files)} files keep to tools/layers.txt")
    return bool(faults)


if __name__ == "__main__":
    sys.exit(main())
