#!/usr/bin/env python3
"""Runs tests and a training over another path of Open MPI, on this machine.

Usage: run_over.py PATH MPIEXEC BIN [WEFT]

PATH is ucx or ofi; BIN is the folder of comm_mpi_test, comm_mpi_hosts_test, comm_mpi_messages_test and mpi_failure. The
tests must pass, failing jobs must end as over the default path, and a training by WEFT must have the default path's hash
and say what carries its messages. Exit status 77 where this Open MPI lacks the path, or MPIEXEC is another MPI's.
"""
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

SKIPPED = 77
HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ["--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]

# Settings as mpirun --mca has them. ucx by itself asks for a Mellanox card, and takes anything if it is told to.
PATHS = {
    "ucx": {"pml": "ucx", "opal_common_ucx_tls": "any", "opal_common_ucx_devices": "any"},
    "ofi": {"pml": "cm", "mtl": "ofi"},
}
CARRIERS = {"ucx": ", ucx", "ofi": ", cm over ofi"}

# What Open MPI says where it has no such component, or the component finds nothing to work with.
LACKING = re.compile(r"No components were able to be opened|cannot be selected|No available pml components"
                     r"|PML (ucx|cm) cannot|component was not found|find-available:none")

TESTS = (("comm_mpi_test", 3), ("comm_mpi_hosts_test", 4), ("comm_mpi_messages_test", 2))
SCENARIOS = ("throw_on_last", "other_collective", "other_size", "longer", "short_collective", "early_return", "busy")

def environment(path):
    """Of jobs over a path; none: the default."""
    settings = {f"OMPI_MCA_{name}": value for name, value in PATHS.get(path, {}).items()}
    return {**os.environ, **settings}


def run(command, path, folder=None, limit=170):
    done = subprocess.run([str(word) for word in command], capture_output=True, text=True, timeout=limit, cwd=folder,
                          env=environment(path))
    return done.returncode, done.stdout + done.stderr


def skip_unless_there(mpiexec, binaries, path):
    if not re.search("Open ?MPI|OpenRTE|PRRTE", run([mpiexec, "--version"], None)[1]):
        print(f"skipped: {mpiexec} is not of Open MPI")
        sys.exit(SKIPPED)
    code, text = run([mpiexec, *FLAGS, "-n", 2, binaries / "comm_mpi_test", "--gtest_filter=Mpi.WasLaunched"], path)
    if code != 0 and LACKING.search(text):
        print(f"skipped: this Open MPI has no {path} that works on this machine\n{text}")
        sys.exit(SKIPPED)


def check_tests(mpiexec, binaries, path):
    for name, ranks in TESTS:
        code, text = run([mpiexec, *FLAGS, "-n", ranks, binaries / name], path)
        if code != 0:
            sys.exit(f"{name} on {ranks} ranks over {path} ended with {code}\n{text}")
        print(f"{name} on {ranks} ranks: passed")


def check_ends(mpiexec, binaries, path):
    for scenario in SCENARIOS:
        code, text = run([sys.executable, HERE / "check_mpi_failures.py", mpiexec, binaries / "mpi_failure", scenario],
                         path)
        if code != 0:
            sys.exit(f"{scenario} over {path}\n{text}")
        print(f"{scenario}: the same end")


def check_training(mpiexec, weft, path):
    sys.path.insert(0, str(HERE.parent / "e2e"))
    from harness import BASE
    with tempfile.TemporaryDirectory() as folder:
        (pathlib.Path(folder) / "job.yaml").write_text(json.dumps(BASE))
        hashes = []
        for over in (None, path):
            code, text = run([mpiexec, *FLAGS, "-n", 3, weft, "train", "job.yaml", "--set", "train.steps=5"], over, folder)
            found = re.findall(r"weights hash\W+(\w+)", text)
            if code != 0 or len(found) != 1:
                sys.exit(f"a training over {over or 'the default path'} ended with {code}\n{text}")
            hashes.append(found[0])
        if hashes[0] != hashes[1]:
            sys.exit(f"the weights have hash {hashes[1]} over {path} and {hashes[0]} over the default path")
        if f"{CARRIERS[path]}" not in "".join(line for line in text.splitlines() if "links: " in line):
            sys.exit(f"the job does not say that {path} carries its messages\n{text}")
        print(f"training: the same hash, {hashes[0]}")


def main():
    path, mpiexec, binaries = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3]).resolve()
    skip_unless_there(mpiexec, binaries, path)
    check_tests(mpiexec, binaries, path)
    check_ends(mpiexec, binaries, path)
    if len(sys.argv) > 4:
        check_training(mpiexec, pathlib.Path(sys.argv[4]).resolve(), path)


if __name__ == "__main__":
    main()
