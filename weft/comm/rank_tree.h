/// Private to comm/: the tree over the ranks of a group, for what is short or the same for all. A
/// node of level l has 8^(l+1) neighbouring ranks and is led by the first of them; below it are up
/// to 8 nodes of level l - 1, or ranks. What goes up reaches a leader in the order of ranks, so a
/// merge of neighbours needs to be associative and no more, and sums are added up the tree over
/// ranks of weft/base/parts.h: a node is a node of that tree, or what is left of one at its end.
///
/// Cost   ⌈log8 W⌉ exchanges, in which a leader has 7 messages at most and most ranks one or none.
///        Eight is what a host has of ranks most often, and keeps few messages in a row.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "weft/comm/communicator.h"

namespace weft::comm {

/// The nodes below a node, at most. Groups of so many ranks have no tree.
inline constexpr int kTreeFan = 8;

/// blocks: [kTreeFan][bytes], the first is this rank's. At each level where this rank leads,
/// combine(n) takes blocks 1 to n - 1 into the first; on rank 0 that is the result in the end.
template <typename Combine>
void Communicator::up_tree(Context& ctx,
                           const TreeCall& call,
                           std::byte* blocks,
                           std::int64_t bytes,
                           const Combine& combine) {
  for (int span = 1; span < size_; span *= kTreeFan) {
    const int within = rank_ % (span * kTreeFan);
    int count = 1;
    lanes_.clear();
    if (within == 0) {
      for (; count < kTreeFan && rank_ + count * span < size_; ++count) {
        receive_from(rank_ + count * span, blocks + count * bytes, bytes);
      }
    } else if (within % span == 0) {
      send_to(rank_ - within, blocks, bytes);
    }
    copy_directly(ctx, next_stamp(call.collective, bytes, call.arguments), lanes_);
    if (count > 1) {
      combine(count);
    }
  }
}

}  // namespace weft::comm
