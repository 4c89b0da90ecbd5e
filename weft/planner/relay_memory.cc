#include "weft/planner/relay_memory.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/cost/memory.h"

namespace weft::planner {
namespace {

constexpr double kCheckWords = 16.0;  // one out, one in

/// The sum of bytes_with(other) and check words over the hosts that `rank` is the relay for.
template <typename BytesWith>
double crossing_of(const HostLayout& layout, std::size_t rank, const BytesWith& bytes_with) {
  const int self = layout.host(static_cast<int>(rank));
  double bytes = 0.0;
  for (int other = 0; other < layout.hosts(); ++other) {
    if (other != self && layout.relay(self, other) == static_cast<int>(rank)) {
      bytes += kCheckWords + bytes_with(other);
    }
  }
  return bytes;
}

double ranks_of(const HostLayout& layout, int host) {
  return static_cast<double>(layout.ranks_of(host).size());
}

}  // namespace

void RelayBlocks::cover(const RelayBlocks& other) {
  crossing = std::max(crossing, other.crossing);
  out = std::max(out, other.out);
  in = std::max(in, other.in);
}

double RelayBlocks::bytes() const {
  return cost::block_bytes(crossing) + cost::block_bytes(out) + cost::block_bytes(in);
}

RelayedLanes::RelayedLanes(const HostLayout& layout,
                           std::span<const std::size_t> kind_of,
                           std::size_t kinds)
    : layout_(layout),
      kind_of_(kind_of),
      kinds_(kinds),
      to_each_(kind_of.size() * kinds),
      of_host_(at(layout.hosts()) * kinds),
      on_host_(of_host_.size()) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    on_host_[at(layout.host(rank)) * kinds + kind_of[at(rank)]] += 1.0;
  }
}

void RelayedLanes::add_up_hosts() {
  for (std::size_t i = 0; i < to_each_.size(); ++i) {
    const std::size_t host = at(layout_.host(static_cast<int>(i / kinds_)));
    of_host_[host * kinds_ + i % kinds_] += to_each_[i];
  }
}

/// Of shards on one host and samples on another.
double RelayedLanes::between(int shards, int samples) const {
  double bytes = 0.0;
  for (std::size_t kind = 0; kind < kinds_; ++kind) {
    bytes += of_host_[at(shards) * kinds_ + kind] * on_host_[at(samples) * kinds_ + kind];
  }
  return bytes;
}

RelayBlocks RelayedLanes::of(std::size_t rank) const {
  const int self = layout_.host(static_cast<int>(rank));
  RelayBlocks blocks{.crossing = crossing_of(layout_, rank, [&](int other) {
                       return between(self, other) + between(other, self);
                     })};
  for (int other = 0; other < layout_.hosts(); ++other) {
    if (other == self) {
      continue;
    }
    blocks.out += of_host_[at(other) * kinds_ + kind_of_[rank]];
    for (std::size_t kind = 0; kind < kinds_; ++kind) {
      blocks.in += to_each_[rank * kinds_ + kind] * on_host_[at(other) * kinds_ + kind];
    }
  }
  return blocks;
}

RelayedGather::RelayedGather(const HostLayout& layout,
                             std::span<const std::size_t> kind_of,
                             std::span<const double> bytes)
    : layout_(layout), of_host_(at(layout.hosts())) {
  for (int rank = 0; rank < layout.ranks(); ++rank) {
    bytes_.push_back(bytes[kind_of[at(rank)]]);
    of_host_[at(layout.host(rank))] += bytes_.back();
    all_ += bytes_.back();
  }
}

RelayBlocks RelayedGather::of(std::size_t rank) const {
  const int self = layout_.host(static_cast<int>(rank));
  const double here = ranks_of(layout_, self);
  if (all_ == 0.0) {
    return {};
  }
  return {.crossing = crossing_of(layout_, rank,
                                  [&](int other) {
                                    return of_host_[at(self)] * ranks_of(layout_, other) +
                                           of_host_[at(other)] * here;
                                  }),
          .out = bytes_[rank] * (static_cast<double>(layout_.ranks()) - here),
          .in = all_ - of_host_[at(self)]};
}

RelayedPairs::RelayedPairs(const HostLayout& layout)
    : layout_(layout), out_(at(layout.ranks())), in_(at(layout.ranks())) {
}

void RelayedPairs::add(std::size_t from, std::size_t to, double bytes) {
  const int a = layout_.host(static_cast<int>(from));
  const int b = layout_.host(static_cast<int>(to));
  if (a != b) {
    out_[from] += bytes;
    in_[to] += bytes;
    between_[std::pair(std::min(a, b), std::max(a, b))] += bytes;
  }
}

RelayBlocks RelayedPairs::of(std::size_t rank) const {
  if (between_.empty()) {
    return {};
  }
  const int self = layout_.host(static_cast<int>(rank));
  return {.crossing = crossing_of(layout_, rank,
                                  [&](int other) {
                                    const auto found = between_.find(
                                        std::pair(std::min(self, other), std::max(self, other)));
                                    return found == between_.end() ? 0.0 : found->second;
                                  }),
          .out = out_[rank],
          .in = in_[rank]};
}

}  // namespace weft::planner
