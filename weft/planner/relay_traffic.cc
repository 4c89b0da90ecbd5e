#include "weft/planner/relay_traffic.h"

#include <numeric>
#include <utility>

#include "weft/base/at.h"
#include "weft/layout/id_lanes.h"
#include "weft/layout/row_gradients.h"
#include "weft/layout/tables.h"

namespace weft::planner {
namespace {

/// Adds what crosses through `rank`: between(from, to) of the hosts that it is the relay for.
template <typename Between>
void add_crossings(const HostLayout& layout,
                   std::size_t rank,
                   const Between& between,
                   RelayBlocks& blocks) {
  const int self = layout.host(static_cast<int>(rank));
  for (int other = 0; other < layout.hosts(); ++other) {
    if (other != self && layout.relay(self, other) == static_cast<int>(rank)) {
      blocks.add_crossing(between(self, other), between(other, self));
    }
  }
}

}  // namespace

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
  RelayBlocks blocks;
  // Shards to samples and back are as long.
  add_crossings(layout_, rank, [this](int from, int to) { return between(from, to); }, blocks);
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
  if (all_ == 0.0) {
    return {};
  }
  // It is packed once, and crosses once for each pair of hosts.
  RelayBlocks blocks{.out = bytes_[rank], .in = all_ - of_host_[at(self)]};
  add_crossings(layout_, rank, [this](int from, int /*to*/) { return of_host_[at(from)]; }, blocks);
  return blocks;
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
    between_[std::pair(a, b)] += bytes;
  }
}

RelayBlocks RelayedPairs::of(std::size_t rank) const {
  if (between_.empty()) {
    return {};
  }
  RelayBlocks blocks{.out = out_[rank], .in = in_[rank]};
  add_crossings(
      layout_, rank,
      [this](int from, int to) {
        const auto found = between_.find(std::pair(from, to));
        return found == between_.end() ? 0.0 : found->second;
      },
      blocks);
  return blocks;
}

RelayTraffic::RelayTraffic(HostLayout hosts, const RankKinds& ranks, const Options& options)
    : hosts_(std::move(hosts)),
      ranks_(ranks),
      options_(options),
      ids_(hosts_, ranks.kind_of, ranks.kinds.size()),
      vectors_(hosts_, ranks.kind_of, ranks.kinds.size()),
      gradients_(hosts_, ranks.kind_of, ranks.kinds.size()),
      to_owners_(hosts_, ranks.kind_of, ranks.kinds.size()),
      statistics_(hosts_),
      replica_rows_(ranks.kinds.size()) {
}

void RelayTraffic::add_ids(
    std::size_t rank, const FeatureUse& use, double share, std::int64_t rows, bool is_split) {
  const auto id = static_cast<double>(spec::id_bytes(rows)) + (use.weighted ? sizeof(float) : 0.0);
  for (std::size_t kind = 0; kind < replica_rows_.size(); ++kind) {
    const double samples = ranks_.kinds[kind].samples;
    ids_.add(rank, kind,
             bag_bytes(use, share, is_split, samples) + samples * use.length * share * id);
  }
}

/// Two lengths for each subtree, and ids; packed ones take no more.
void RelayTraffic::add_unique_rows(std::size_t rank,
                                   std::size_t kind,
                                   std::int64_t rows,
                                   double asked) {
  const auto lengths = 2.0 * sizeof(std::int32_t);
  ids_.add(rank, kind,
           lengths * static_cast<double>(ranks_.kinds[kind].subtrees.size()) +
               static_cast<double>(spec::id_bytes(rows)) * asked);
}

void RelayTraffic::add_vectors(std::size_t rank,
                               std::size_t kind,
                               double vectors,
                               double gradients) {
  vectors_.add(rank, kind, vectors);
  gradients_.add(rank, kind, gradients);
}

void RelayTraffic::add_statistics(std::span<const spec::Shard> beside, double rows) {
  for (const spec::Shard& from : beside) {
    const auto blocks =
        layout::statistic_lengths(Expected{rows}, layout::column_blocks(from.cols.size()), 0);
    for (const spec::Shard& to : beside) {
      statistics_.add(at(from.rank), at(to.rank), blocks.own_blocks.bytes().value);
    }
  }
}

void RelayTraffic::add_replica_rows(std::size_t kind, double bytes) {
  replica_rows_[kind] += bytes;
}

void RelayTraffic::add_owned_rows(double partials, double sums) {
  has_owners_ = true;
  for (std::size_t kind = 0; kind < replica_rows_.size(); ++kind) {
    add_replica_rows(kind, sums);
    for (std::size_t rank = 0; rank < ranks_.kind_of.size(); ++rank) {
      to_owners_.add(rank, kind, partials);
    }
  }
}

void RelayTraffic::add_up(std::span<const std::int64_t> slots) {
  serves_several_.assign(at(hosts_.ranks()), 0);
  has_server_.assign(at(hosts_.hosts()), 0);
  for (int rank = 0; rank < hosts_.ranks(); ++rank) {
    serves_several_[at(rank)] = slots[at(rank)] > 1 ? 1 : 0;
    has_server_[at(hosts_.host(rank))] |= serves_several_[at(rank)];
  }
  hosts_with_server_ = std::accumulate(has_server_.begin(), has_server_.end(), 0);
  to_owners_.add_up_hosts();
  ids_.add_up_hosts();
  vectors_.add_up_hosts();
  gradients_.add_up_hosts();
  replicas_.emplace(hosts_, ranks_.kind_of, replica_rows_);
}

/// Packed lanes of ids are one run; others, which may be one, are counted as if they were not. What
/// is encoded lies in one run, and so do vectors of whole batches at both ends and their gradients
/// where they come. A micro-batch has a piece per slot: where a rank serves several, its vectors
/// leave and their gradients come in pieces, and vectors of such a rank come to others in pieces.
double RelayTraffic::held_bytes(std::size_t rank) const {
  double bytes = 0.0;
  if (options_.ids) {
    RelayBlocks blocks = ids_.of(rank);
    if (layout::packs_id_lanes(hosts_.ranks())) {
      blocks.out = blocks.in = 0.0;
    }
    bytes += layout::held_bytes(blocks);
  }
  if (options_.vectors) {
    RelayBlocks blocks = gradients_.of(rank);
    const bool encodes_vectors = options_.codecs.forward != CodecFormat::kFp32;
    const bool encodes_gradients = options_.codecs.backward != CodecFormat::kFp32;
    const bool serves = options_.micro_batches && serves_several_[rank] != 0;
    const int on_own = has_server_[at(hosts_.host(static_cast<int>(rank)))];
    const bool is_served = options_.micro_batches && hosts_with_server_ > on_own;
    blocks.out = encodes_gradients ? 0.0 : blocks.out;
    blocks.in = serves && !encodes_gradients ? blocks.in : 0.0;
    const RelayBlocks vectors =
        vectors_.of(rank);  // `in` leaves the shards, `out` comes to samples
    blocks.cover({.crossing = vectors.crossing,
                  .out = serves && !encodes_vectors ? vectors.in : 0.0,
                  .in = is_served && !encodes_vectors ? vectors.out : 0.0});
    RelayBlocks rows = replicas_->of(rank);
    rows.cover(statistics_.of(rank));
    rows.cover(has_owners_ ? to_owners_.of(rank) : RelayBlocks{});
    bytes += layout::held_bytes(blocks) + layout::held_bytes(rows);
  }
  return bytes;
}

}  // namespace weft::planner
