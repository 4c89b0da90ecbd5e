/// Lengths of what a rank holds of a hierarchical exchange (weft/comm/relays.h).
#pragma once

#include <cstdint>

#include "weft/layout/lengths.h"

namespace weft::layout {

/// A message between hosts begins with a check word.
inline constexpr std::int64_t kCheckBytes = sizeof(std::uint64_t);

/// A message between hosts with so many bytes of lanes.
template <typename N>
N message_bytes(const N& lanes) {
  return lanes + N{kCheckBytes};
}

/// The blocks of a communicator, in bytes. They are kept for all its exchanges, and are as long as
/// the longest needs.
template <typename N>
struct RelayBlocks {
  N crossing = {};  ///< messages through this rank, out and in
  N out = {};       ///< lanes from this rank to other hosts, where they are packed
  N in = {};        ///< and those from them

  /// Adds a pair of messages to and from one other host that cross through this rank.
  void add_crossing(const N& out_lanes, const N& in_lanes) {
    crossing += message_bytes(out_lanes) + message_bytes(in_lanes);
  }

  /// The longer of each.
  void cover(const RelayBlocks& other) {
    crossing = larger(crossing, other.crossing);
    out = larger(out, other.out);
    in = larger(in, other.in);
  }
};

/// What they take on average, each as long as here.
inline double held_bytes(const RelayBlocks<double>& blocks) {
  return block_bytes(blocks.crossing) + block_bytes(blocks.out) + block_bytes(blocks.in);
}

}  // namespace weft::layout
