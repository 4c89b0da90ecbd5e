"""Twenty cases of chaos.py; more of them by hand, with other seeds."""

import io
import os

import chaos
from harness import Case, MpiCase


class Chaos(Case):
    def test_as_threads(self):
        self.run_cases(1, 14)

    def run_cases(self, seed, cases):
        told = io.StringIO()
        failed = chaos.run_cases(os.path.realpath(self.weft), self.mpirun, seed, cases, told)
        print(told.getvalue())
        self.assertEqual(failed, 0, told.getvalue())


class MpiChaos(Chaos, MpiCase):
    def test_as_threads(self):
        self.skipTest("is Chaos")

    def test_some_under_mpirun(self):
        self.run_cases(101, 6)
