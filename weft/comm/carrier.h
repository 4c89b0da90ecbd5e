/// What carries messages between ranks.
#pragma once

#include <string>

namespace weft::comm {

/// As a log names it; both empty where ranks are threads of one process.
struct Carrier {
  std::string between_hosts;  ///< e.g. "Open MPI v4.1.4, ob1 over tcp (eth0)"
  std::string inside_hosts;   ///< e.g. "Open MPI v4.1.4, ob1 over vader"
  bool sockets = false;       ///< between hosts surely the kernel's TCP, with a socket to each rank

  [[nodiscard]] bool empty() const { return between_hosts.empty(); }
};

}  // namespace weft::comm
