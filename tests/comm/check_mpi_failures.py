#!/usr/bin/env python3
"""Runs mpi_failure under mpirun and checks how jobs end.

Usage: check_mpi_failures.py MPIEXEC PROGRAM SCENARIO
"""
import re
import subprocess
import sys
import time

RANKS = 3

# scenario: (code, origin rank or None for any, text that the one message contains)
EXPECTED = {
    "throw_on_last": ("data", 2, "file day_3 is cut"),
    "throw_on_first": ("internal", 0, "something odd"),
    "other_collective": ("comm", None, "are out of step"),
    "other_size": ("comm", 0, "all_to_all #0 of group 'world': rank 1 sends 10 bytes to rank 0, "
                              "which expects 12 bytes"),
    "late": ("timeout", None, "these are missing: rank 2"),
    "early_return": ("comm", None, "waits for rank 0, which has ended"),
    "busy": ("data", 1, "stop"),
}

# Jobs that the launcher or MPI_Abort ends, long before a collective's timeout of 60 s.
ENDED_FROM_OUTSIDE = {"killed": 45, "stuck": 45}


def run(mpiexec, program, scenario):
    command = [mpiexec, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
               "-n", str(RANKS), program, scenario]
    begin = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, timeout=80)
    return done, time.monotonic() - begin


def main():
    mpiexec, program, scenario = sys.argv[1:4]
    done, seconds = run(mpiexec, program, scenario)
    print(done.stdout, done.stderr, f"{seconds:.1f} s, exit status {done.returncode}", sep="\n")
    if scenario in ENDED_FROM_OUTSIDE:
        if done.returncode == 0:
            sys.exit("the job should have failed")
        if seconds > ENDED_FROM_OUTSIDE[scenario]:
            sys.exit(f"the job took {seconds:.1f} s to end")
        return
    if done.returncode != 0:
        sys.exit("the job should have ended in order")
    code, origin, text = EXPECTED[scenario]
    found = dict(re.findall(r"^rank (\d+): (.*)$", done.stdout, re.MULTILINE))
    if sorted(found) != [str(rank) for rank in range(RANKS)]:
        sys.exit(f"not every rank reported: {found}")
    if len(set(found.values())) != 1:
        sys.exit(f"ranks report different errors: {found}")
    report = found["0"]
    wanted = code + (f" origin={origin} " if origin is not None else " origin=")
    if not report.startswith(wanted) or text not in report:
        sys.exit(f"'{report}' is not '{wanted}...{text}'")


if __name__ == "__main__":
    main()
