"""Twenty cases of chaos.py; more of them by hand, with other seeds."""

import io
import os
import shutil

import chaos
from harness import Case, MpiCase


class Chaos(Case):
    def test_as_threads(self):
        self.run_cases(1, 14)

    def test_a_lost_checkpoint_is_found(self):
        folder = self.folder
        case = chaos.Chaos(os.path.realpath(self.weft), None, 1, folder, reference=None)
        case.events = ["end"]
        case.checked(case.start(case.command(keep=2)), (0,))
        newest = max((folder / "ck/job").glob("step-*[0-9]"))
        shutil.rmtree(newest)
        with self.assertRaisesRegex(chaos.Failed, f"but step {chaos.STEPS} was announced"):
            case.checked(case.start(case.command(keep=2)), (0,))

    def run_cases(self, seed, cases):
        told = io.StringIO()
        failed = chaos.run_cases(os.path.realpath(self.weft), self.mpirun, seed, cases, told)
        print(told.getvalue())
        self.assertEqual(failed, 0, told.getvalue())


class MpiChaos(Chaos, MpiCase):
    def test_as_threads(self):
        self.skipTest("is Chaos")

    test_a_lost_checkpoint_is_found = test_as_threads

    def test_some_under_mpirun(self):
        self.run_cases(101, 6)
