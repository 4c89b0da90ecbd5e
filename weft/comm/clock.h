/// How far the clocks of a group's ranks are apart.
#pragma once

#include <cstdint>

#include "weft/comm/communicator.h"

namespace weft::comm {

/// The distance of a rank's clock from that of rank 0.
struct ClockOffset {
  std::int64_t offset_ns = 0;  ///< this rank's steady clock minus rank 0's
  std::int64_t error_ns = 0;   ///< by how much that may be wrong, either way
};

/// Collective. A rank asks its leader in the tree of ranks (weft/comm/rank_tree.h), which knows its
/// own distance by then: from the root down, level by level. Ranks on the leader's host have its
/// clock; every other takes the fastest of `rounds` round trips, half of which is the error, and
/// adds the leader's. Cost: 14 `rounds` exchanges a level, ⌈log8 W⌉ levels, one round where all
/// leaders of a level are on their ranks' hosts; a rank sends 7 `rounds` messages a level at most.
/// Source: the offset of NTP, RFC 5905, section 8.
ClockOffset clock_offset(Communicator& comm, Context& ctx, int rounds = 16);

}  // namespace weft::comm
