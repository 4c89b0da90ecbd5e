#include "weft/comm/rank_tree.h"

#include <cstring>
#include <span>

#include "weft/comm/call_guard.h"
#include "weft/comm/group.h"

namespace weft::comm {

bool Communicator::has_tree() const {
  return size_ > kTreeFan;
}

/// From `root` to all. Ranks are counted from it on, so that it leads.
void Communicator::down_tree(
    Context& ctx, const TreeCall& call, void* data, std::int64_t bytes, int root) {
  const int place = (rank_ - root + size_) % size_;
  const auto rank_at = [&](int other) { return (other + root) % size_; };
  int span = 1;
  while (span * kTreeFan < size_) {
    span *= kTreeFan;
  }
  for (; span > 0; span /= kTreeFan) {
    const int within = place % (span * kTreeFan);
    silence();
    if (within == 0) {
      for (int i = 1; i < kTreeFan && place + i * span < size_; ++i) {
        send_to(rank_at(place + i * span), data, bytes);
      }
    } else if (within % span == 0) {
      receive_from(rank_at(place - within), data, bytes);
    }
    copy_directly(ctx, next_stamp(call.collective, bytes, call.arguments), send_, recv_);
  }
}

void Communicator::merge(Context& ctx, std::span<std::byte> block, BlockMerger merger) {
  const CallGuard guard(busy_, name(), ctx);
  const auto bytes = static_cast<std::int64_t>(block.size());
  const int blocks = has_tree() ? kTreeFan : size_;
  std::byte* const all = scratch(blocks * bytes);
  const std::span<std::byte> first(all, block.size());
  const auto combine = [&](int count) {
    for (int i = 1; i < count; ++i) {
      merger(first, std::span<const std::byte>(all + i * bytes, block.size()));
    }
  };
  if (has_tree()) {
    const TreeCall call{Collective::kMerge, 0};
    std::memcpy(all, block.data(), block.size());
    up_tree(ctx, call, all, bytes, combine);
    std::memcpy(block.data(), all, block.size());
    down_tree(ctx, call, block.data(), bytes, 0);
    return;
  }
  for (int p = 0; p < size_; ++p) {
    send_to(p, block.data(), bytes);
    receive_from(p, all + p * bytes, bytes);
  }
  copy(ctx, next_stamp(Collective::kMerge, bytes, 0), send_, recv_, Payload::kSame);
  combine(size_);
  std::memcpy(block.data(), all, block.size());
}

}  // namespace weft::comm
