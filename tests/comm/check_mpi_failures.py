#!/usr/bin/env python3
"""Runs mpi_failure under mpirun and checks how jobs end.

Usage: check_mpi_failures.py MPIEXEC PROGRAM SCENARIO
       check_mpi_failures.py MPIEXEC PROGRAM --many RANKS     by hand: every fault in every tree and relay

A scenario of many ranks is KIND_STEP_RANK_of_RANKS[_at_EXCHANGE]: late_merge_9_of_16 is rank 9 of 16, on hosts
of 4, late in a merge.
"""
import re
import subprocess
import sys
import time


MANY = re.compile(r"(late|stopped|killed|thrown)_([a-z]+)_(\d+)_of_(\d+)(?:_at_(\d+))?")


def ranks_of(scenario):
    if many := MANY.fullmatch(scenario):
        return int(many[4])
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


def check_many(scenario, done, seconds):
    """One of many ranks is named, and it alone."""
    kind, _, rank, ranks, _ = MANY.fullmatch(scenario).groups()
    named = rf"these are missing: rank (\d+ \(world rank {rank}\)|{rank})"
    if kind == "killed":
        if done.returncode == 0 or not re.search(rf"process rank {rank} .*exited on signal 9", done.stderr):
            sys.exit("the launcher does not name the rank")
        if seconds > 45:
            sys.exit(f"the job took {seconds:.1f} s to end")
        return
    if kind == "stopped":  # it cannot be waited for, and is ended with the job
        asked = (named + r" \(rank \d+.* did not answer" if rank != "0"
                 else "rank 0, which hears of all errors, has not answered")
        if done.returncode == 0 or not re.search(asked, done.stderr):
            sys.exit("the rank is not named")
        return
    found = dict(re.findall(r"^rank (\d+): (.*)$", done.stdout, re.MULTILINE))
    if len(found) != int(ranks) or len(set(found.values())) != 1:
        sys.exit(f"ranks report different errors: {found}")
    wanted = named + "; look at" if kind == "late" else rf"^data origin={rank} the disk is gone"
    if not re.search(wanted, found["0"]):
        sys.exit(f"'{found['0']}' does not name rank {rank}")


# Steps of 16 ranks and more on hosts of 4, and how many exchanges each is.
STEPS = {"merge": 4, "broadcast": 2, "barrier": 4, "gather": 4, "relays": 4, "reduce": 4}


def try_many(mpiexec, program, ranks):
    """A rank that leads in trees, one that relays, the last and the first, in turns."""
    chosen = [9, 8, int(ranks) - 1, 1, 0, 5]
    failed = 0
    tried = 0
    for kind in ("late", "stopped", "killed", "thrown"):
        for step, exchanges in STEPS.items():
            for at in range(exchanges):
                scenario = f"{kind}_{step}_{chosen[tried % len(chosen)]}_of_{ranks}_at_{at}"
                tried += 1
                done = subprocess.run([sys.executable, __file__, mpiexec, program, scenario],
                                      capture_output=True, text=True, check=False)
                print("held  " if done.returncode == 0 else "FAILED", scenario, flush=True)
                if done.returncode != 0:
                    failed += 1
                    print(done.stdout, done.stderr, sep="\n", flush=True)
    print(f"{tried - failed} of {tried} held")
    sys.exit(failed != 0)


def main():
    if sys.argv[3] == "--many":
        try_many(sys.argv[1], sys.argv[2], sys.argv[4])
    mpiexec, program, scenario = sys.argv[1:4]
    done, seconds = run(mpiexec, program, scenario)
    print(done.stdout, done.stderr, f"{seconds:.1f} s, exit status {done.returncode}", sep="\n")
    if MANY.fullmatch(scenario):
        check_many(scenario, done, seconds)
        return
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
