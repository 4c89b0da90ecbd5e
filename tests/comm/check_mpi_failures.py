#!/usr/bin/env python3
"""Runs mpi_failure under mpirun and checks how jobs end.

Usage: check_mpi_failures.py MPIEXEC PROGRAM SCENARIO
"""
import re
import subprocess
import sys
import time


def ranks_of(scenario):
    staged = "_lost_" in scenario or "_killed_" in scenario or "_midway" in scenario
    return 4 if staged else 3  # two hosts with two ranks each

# scenario: (code, origin rank or None for any, text that the one message contains)
EXPECTED = {
    "throw_on_last": ("data", 2, "file day_3 is cut"),
    "throw_on_first": ("internal", 0, "something odd"),
    "other_collective": ("comm", None, "are out of step"),
    "other_size": ("comm", 0, "all_to_all #0 of group 'world': rank 1 sends 10 bytes to rank 0, "
                              "which expects 12 bytes"),
    "longer": ("comm", 0, "all_to_all #0 of group 'world': rank 1 sends 3000 bytes to rank 0, "
                          "which expects 12 bytes"),
    "short_collective": ("comm", None, "are out of step"),
    "late": ("timeout", None, "these are missing: rank 2"),
    "early_return": ("comm", None, "waits for rank 0, which has ended"),
    "busy": ("data", 1, "stop"),
    "untaken": ("data", 0, "nobody takes it"),
    "few_files": ("resource", 1, "may have 100 files open (the hard limit of ulimit -n), and needs "),
    "raised_files": ("no error", None, ""),
}

# Before a stage of a hierarchical collective the last rank is lost, or rank 2, through which its host
# reaches the other.
STAGES = [f"{collective}_{{}}_{stage}" for collective in ("relays", "reduce") for stage in range(4)]
RELAY = "_rank_2"
EXPECTED |= {name.format("lost"): ("data", 3, "the disk is gone") for name in STAGES}
EXPECTED |= {name.format("lost") + RELAY: ("data", 2, "the disk is gone") for name in STAGES}

# Jobs that the launcher or MPI_Abort ends, long before a collective's timeout of 60 s.
KILLED = ["killed", "stuck", "relays_midway", "reduce_midway"]
KILLED += [name.format("killed") + rank for name in STAGES for rank in ("", RELAY)]
ENDED_FROM_OUTSIDE = {name: 45 for name in KILLED}


def run(mpiexec, program, scenario):
    command = [mpiexec, "--allow-run-as-root", "--oversubscribe", "--bind-to", "none",
               "-n", str(ranks_of(scenario)), program, scenario]
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
        if scenario == "stuck" and "with MPI_Abort. Lost: 1, the first 2. The error: " not in done.stderr:
            sys.exit("nobody says who is lost")
        return
    if done.returncode != 0:
        sys.exit("the job should have ended in order")
    code, origin, text = EXPECTED[scenario]
    found = dict(re.findall(r"^rank (\d+): (.*)$", done.stdout, re.MULTILINE))
    if sorted(found) != [str(rank) for rank in range(ranks_of(scenario))]:
        sys.exit(f"not every rank reported: {found}")
    if len(set(found.values())) != 1:
        sys.exit(f"ranks report different errors: {found}")
    report = found["0"]
    if code == "no error":
        if report != code:
            sys.exit(f"there is an error: {report}")
        return
    wanted = code + (f" origin={origin} " if origin is not None else " origin=")
    if not report.startswith(wanted) or text not in report:
        sys.exit(f"'{report}' is not '{wanted}...{text}'")


if __name__ == "__main__":
    main()
