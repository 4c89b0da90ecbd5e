/// Ranks as threads on made-up hosts, for tests of collectives in stages.
#pragma once

#include <vector>

#include "weft/comm/communicator.h"
#include "weft/comm/local/local.h"

namespace weft::comm {

/// [ranks] the host of each.
using Hosts = std::vector<int>;

/// Calls `body` on every rank with a hierarchical communicator, which is flat where the hosts leave
/// nothing to do in stages. Throws what a rank throws.
template <typename Body>
void run_on(const Hosts& hosts, const Body& body) {
  run_local(static_cast<int>(hosts.size()), {.timeout_s = 20.0, .hosts = hosts},
            [&](Communicator& world) {
              const auto comm = world.duplicate("test", Form::kHierarchical);
              body(*comm);
            });
}

}  // namespace weft::comm
