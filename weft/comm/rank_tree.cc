#include "weft/comm/rank_tree.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

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
    lanes_.clear();
    if (within == 0) {
      for (int i = 1; i < kTreeFan && place + i * span < size_; ++i) {
        send_to(rank_at(place + i * span), data, bytes);
      }
    } else if (within % span == 0) {
      receive_from(rank_at(place - within), data, bytes);
    }
    copy_directly(ctx, next_stamp(call.collective, bytes, call.arguments), lanes_);
  }
}

/// A run of `own.size()` bytes of each rank, on all: up the tree, where runs of neighbours lie
/// beside each other, and down.
void Communicator::gather_along_tree(Context& ctx,
                                     const TreeCall& call,
                                     std::span<const std::byte> own,
                                     std::span<std::byte> all) {
  const auto bytes = static_cast<std::int64_t>(own.size());
  std::byte* const mine = all.data() + rank_ * bytes;
  std::memcpy(mine, own.data(), own.size());
  for (int span = 1; span < size_; span *= kTreeFan) {
    const int within = rank_ % (span * kTreeFan);
    const auto ranks_from = [&](int first) { return std::min(span, size_ - first); };
    lanes_.clear();
    if (within == 0) {
      for (int i = 1; i < kTreeFan && rank_ + i * span < size_; ++i) {
        const int from = rank_ + i * span;
        receive_from(from, all.data() + from * bytes, ranks_from(from) * bytes);
      }
    } else if (within % span == 0) {
      send_to(rank_ - within, mine, ranks_from(rank_) * bytes);
    }
    copy_directly(ctx, next_stamp(call.collective, -1, call.arguments), lanes_);
  }
  down_tree(ctx, call, all.data(), static_cast<std::int64_t>(all.size()), 0);
}

std::vector<std::byte> Communicator::merge_to_first(Context& ctx,
                                                    std::vector<std::byte> own,
                                                    const BytesMerger& merger) {
  const CallGuard guard(busy_, name(), ctx);
  constexpr std::uint64_t kOfAnyLength = 1;  // merge() is of one length
  std::vector<std::byte> others;
  for (int span = 1; span < size_; span *= kTreeFan) {
    const int within = rank_ % (span * kTreeFan);
    const bool sends = within != 0 && within % span == 0;
    std::array<std::int64_t, kTreeFan> lengths{};
    auto own_length = static_cast<std::int64_t>(own.size());
    int count = 1;
    lanes_.clear();
    if (within == 0) {
      for (; count < kTreeFan && rank_ + count * span < size_; ++count) {
        receive_from(rank_ + count * span, &lengths[static_cast<std::size_t>(count)],
                     sizeof own_length);
      }
    } else if (sends) {
      send_to(rank_ - within, &own_length, sizeof own_length);
    }
    copy_directly(ctx, next_stamp(Collective::kMerge, sizeof own_length, kOfAnyLength), lanes_);
    const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
    others.resize(static_cast<std::size_t>(total));
    lanes_.clear();
    std::byte* next = others.data();
    for (int i = 1; i < count; ++i) {
      const std::int64_t length = lengths[static_cast<std::size_t>(i)];
      receive_from(rank_ + i * span, next, length);
      next += length;
    }
    if (sends) {
      send_to(rank_ - within, own.data(), own_length);
    }
    copy_directly(ctx, next_stamp(Collective::kMerge, -1, kOfAnyLength), lanes_);
    std::span<const std::byte> rest(others);
    for (int i = 1; i < count; ++i) {
      const auto length = static_cast<std::size_t>(lengths[static_cast<std::size_t>(i)]);
      merger(own, rest.first(length));
      rest = rest.subspan(length);
    }
  }
  return own;
}

void Communicator::share(Context& ctx, std::vector<std::byte>& bytes, int root) {
  auto size = static_cast<std::int64_t>(bytes.size());
  broadcast(ctx, &size, sizeof size, root);
  bytes.resize(static_cast<std::size_t>(size));
  broadcast(ctx, bytes.data(), size, root);
}

void Communicator::share(Context& ctx, std::string& text, int root) {
  auto size = static_cast<std::int64_t>(text.size());
  broadcast(ctx, &size, sizeof size, root);
  text.resize(static_cast<std::size_t>(size));
  broadcast(ctx, text.data(), size, root);
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
  lanes_.clear();
  for (int p = 0; p < size_; ++p) {
    send_to(p, block.data(), bytes);
    receive_from(p, all + p * bytes, bytes);
  }
  copy(ctx, next_stamp(Collective::kMerge, bytes, 0), lanes_, Payload::kSame);
  combine(size_);
  std::memcpy(block.data(), all, block.size());
}

}  // namespace weft::comm
