"""End-to-end tests of the program weft.

Usage: e2e_test.py WEFT TOPIC [MPIRUN]     TOPIC: a class of the files beside this one
"""

import importlib
import pathlib
import sys
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import harness  # noqa: E402  (found through the line above)


def topics():
    found = {}
    for path in sorted(HERE.glob("topic_*.py")):
        for value in vars(importlib.import_module(path.stem)).values():
            if isinstance(value, type) and issubclass(value, harness.Case):
                found[value.__name__] = value
    return found


def main(arguments):
    if len(arguments) not in (2, 3):
        sys.exit(__doc__)
    known = topics()
    if arguments[1] not in known:
        sys.exit(f"unknown topic {arguments[1]}; there are {' '.join(sorted(known))}")
    harness.Case.weft = str(pathlib.Path(arguments[0]).resolve())
    harness.Case.mpirun = arguments[2] if len(arguments) == 3 else None
    suite = unittest.defaultTestLoader.loadTestsFromTestCase(known[arguments[1]])
    result = unittest.TextTestRunner(verbosity=2).run(suite)
    if result.wasSuccessful() and len(result.skipped) == result.testsRun:
        sys.exit(77)  # ctest: skipped
    sys.exit(not result.wasSuccessful())


if __name__ == "__main__":
    main(sys.argv[1:])
