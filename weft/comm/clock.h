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

/// Collective. Ranks on rank 0's host have its clock. Every other exchanges `rounds` round trips
/// with rank 0, one rank after the other, and takes the fastest: half of what it took beyond rank
/// 0's own part is the error. Cost: some 0.1 ms per rank elsewhere and round trip. Source: the
/// offset of NTP, RFC 5905, section 8.
ClockOffset clock_offset(Communicator& comm, Context& ctx, int rounds = 16);

}  // namespace weft::comm
