"""The processor that benchmarks run on, as Linux tells it."""
import os
import pathlib

BF16_FLAGS = {"avx512_bf16", "amx_bf16"}


def processor():
    """Name, cores and flags of this machine."""
    info = dict(line.split(":", 1) for line in pathlib.Path("/proc/cpuinfo").read_text().split("\n\n")[0].splitlines()
                if ":" in line)
    info = {key.strip(): value.strip() for key, value in info.items()}
    return info.get("model name", "unknown"), len(os.sched_getaffinity(0)), set(info.get("flags", "").split())


def has_bf16():
    """Whether it has products of bf16."""
    return bool(processor()[2] & BF16_FLAGS)
