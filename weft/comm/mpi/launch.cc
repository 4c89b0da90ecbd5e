#include <array>
#include <cstdlib>

#include "weft/comm/mpi/mpi.h"

namespace weft::comm {

bool launched_by_mpi() {
  // Set by mpirun of Open MPI, by PMIx servers (srun --mpi=pmix, prterun) and by PMI-1/2 (MPICH,
  // srun --mpi=pmi2). SLURM_PROCID alone is set in every Slurm task, also without MPI.
  constexpr std::array kVariables = {"OMPI_COMM_WORLD_SIZE", "PMIX_RANK", "PMI_RANK"};
  for (const char* name : kVariables) {
    if (std::getenv(name) != nullptr) {
      return true;
    }
  }
  return false;
}

}  // namespace weft::comm
