"""Processes that a launcher started in number, and that know nothing of each other."""

from harness import BASE, Case, MpiCase


class Launcher(Case):
    def refuses(self, environment, *args, says):
        result = self.run_weft(*args, code=2, environment=environment)
        for part in says:
            self.assertIn(part, result.err)

    def test_one_of_several_is_refused(self):
        config = self.write()
        for command in ("train", "eval"):
            self.refuses({"WORLD_SIZE": "2", "RANK": "0"}, command, config,
                         says=("WORLD_SIZE is 2", f"mpirun -n 2 weft {command} {config}"))
            self.refuses({"SLURM_STEP_NUM_TASKS": "4", "SLURM_PROCID": "1"}, command, config,
                         says=("SLURM_STEP_NUM_TASKS is 4",
                               f"srun --mpi=pmix -n 4 weft {command} {config}", "--ranks"))

    def test_ranks_or_one_process_say_what_it_is(self):
        config = self.write(BASE, values={"train.steps": 2})
        for environment, args in (({"WORLD_SIZE": "2"}, ["--ranks", 1]),
                                  ({"SLURM_STEP_NUM_TASKS": "3"}, ["--ranks", 2]),
                                  ({"WORLD_SIZE": "1", "SLURM_STEP_NUM_TASKS": "1"}, [])):
            result = self.run_weft("train", config, *args, environment=environment)
            self.assertIn("weights hash", result.out)


class MpiLauncher(MpiCase):
    def test_launcher_of_another_mpi_is_refused(self):
        """As mpiexec of MPICH starts a program that was built with Open MPI."""
        config = self.write(BASE, values={"train.steps": 2})
        environment = {"PMI_RANK": "0", "PMI_SIZE": "4"}
        result = self.run_weft("train", config, code=2, environment=environment)
        for part in ("started 4 processes", "another MPI", f"mpirun -n 4 weft train {config}"):
            self.assertIn(part, result.err)
        self.run_weft("train", config, "--ranks", 1, environment=environment)
