/// Private to comm/mpi: whether a process may open the sockets that its messages need.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "weft/io/process.h"

namespace weft::comm {

/// The job as its limits of open files see it.
struct SocketNeed {
  int ranks = 1;
  int hosts = 1;
  int elsewhere = 0;  ///< ranks on other hosts than this one's
};

/// Claims the files that MPI opens for messages to other hosts, and raises the soft limit of this
/// process where that takes it. Returns what is wrong where the hard limit is below a socket for
/// each rank of another host: which limit it is, what is needed, and what to do.
std::optional<std::string> claim_sockets(io::OpenFileClaim& claim, const SocketNeed& need);

}  // namespace weft::comm
