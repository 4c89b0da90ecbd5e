/// Private to planner/: what ranks hold of hierarchical exchanges (weft/comm/relays.h), by what is
/// exchanged. A communicator keeps three blocks for all its exchanges, each as long as the longest
/// needs: what crosses through this rank out and in, with a check word each way; its lanes to other
/// hosts that are not one run; and those from them.
///
/// Notation: H hosts, K kinds of ranks, which have as many samples. Bytes are expected ones.
/// Cost: of(rank) O(H K), RelayedPairs O(H log pairs); sums O(ranks · K).
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/host_layout.h"

namespace weft::planner {

struct RelayBlocks {
  double crossing = 0.0;
  double out = 0.0;  ///< of lanes that leave the rank for other hosts
  double in = 0.0;

  /// The longer of each.
  void cover(const RelayBlocks& other);

  [[nodiscard]] double bytes() const;  ///< as the allocators count them
};

/// Between ranks that hold shards and ranks of samples: ids and gradients go to the shards, vectors
/// come back.
class RelayedLanes {
 public:
  /// `kind_of`: [ranks]. Both outlive it.
  RelayedLanes(const HostLayout& layout, std::span<const std::size_t> kind_of, std::size_t kinds);

  /// For each rank of a kind, of a shard on `rank`.
  void add(std::size_t rank, std::size_t kind, double bytes) {
    to_each_[rank * kinds_ + kind] += bytes;
  }

  /// Before of(), once all are there.
  void add_up_hosts();

  /// `out` of the rank's samples, `in` of its shards.
  [[nodiscard]] RelayBlocks of(std::size_t rank) const;

 private:
  [[nodiscard]] double between(int shards, int samples) const;

  const HostLayout& layout_;
  std::span<const std::size_t> kind_of_;
  std::size_t kinds_;
  std::vector<double> to_each_;  ///< [ranks][kinds]
  std::vector<double> of_host_;  ///< [hosts][kinds] the same of all its ranks
  std::vector<double> on_host_;  ///< [hosts][kinds] ranks
};

/// Every rank sends its bytes to every other: partial sums of replicas' rows.
class RelayedGather {
 public:
  /// `bytes`: [kinds]. The layout outlives it.
  RelayedGather(const HostLayout& layout,
                std::span<const std::size_t> kind_of,
                std::span<const double> bytes);

  [[nodiscard]] RelayBlocks of(std::size_t rank) const;

 private:
  const HostLayout& layout_;
  std::vector<double> bytes_;    ///< [ranks]
  std::vector<double> of_host_;  ///< [hosts]
  double all_ = 0.0;
};

/// From some ranks to some others: row statistics.
class RelayedPairs {
 public:
  /// The layout outlives it.
  explicit RelayedPairs(const HostLayout& layout);

  void add(std::size_t from, std::size_t to, double bytes);

  [[nodiscard]] RelayBlocks of(std::size_t rank) const;

 private:
  const HostLayout& layout_;
  std::vector<double> out_, in_;                   ///< [ranks] to and from other hosts
  std::map<std::pair<int, int>, double> between_;  ///< two hosts, the lower first
};

}  // namespace weft::planner
