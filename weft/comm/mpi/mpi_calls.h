/// Private to comm/mpi: MPI's C interface.
#pragma once

// The C++ bindings were removed from the standard long ago, and their headers do not compile
// without warnings.
#define OMPI_SKIP_MPICXX 1
#define MPICH_SKIP_MPICXX 1
#include <mpi.h>

namespace weft::comm {

/// Throws Error(kComm) naming the call when `code` is not MPI_SUCCESS.
void check_mpi(int code, const char* call);

}  // namespace weft::comm
