/// Private to planner/: what passes between hosts in hierarchical exchanges (weft/comm/relays.h),
/// by what is exchanged, and what ranks hold of it: weft/layout/relays.h has the blocks.
///
/// Notation: H hosts, K kinds of ranks, which have as many samples. Bytes are expected ones.
/// Cost: of(rank) O(H K), RelayedPairs O(H log pairs); sums O(ranks · K).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/layout/relays.h"
#include "weft/planner/step_counts.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// Of a rank, in bytes.
using RelayBlocks = layout::RelayBlocks<double>;

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

/// Every rank sends the same bytes to every other: partial sums of replicas' rows, or sums.
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
  std::map<std::pair<int, int>, double> between_;  ///< from a host to another
};

/// All that ranks of a plan exchange through relays: ids by one communicator, vectors and gradients
/// by another, row statistics and replicas' rows by a third. Blocks of each are as long as the
/// longest exchange needs.
class RelayTraffic {
 public:
  /// What goes through relays, and how it lies.
  struct Options {
    bool ids = false;
    bool vectors = false;
    spec::Codecs codecs = {};
    bool micro_batches = false;  ///< vectors and gradients pass for a part of every slot at a time
  };

  RelayTraffic(HostLayout hosts, const RankKinds& ranks, const Options& options);
  RelayTraffic(const RelayTraffic&) = delete;
  RelayTraffic& operator=(const RelayTraffic&) = delete;

  /// Ids of a feature that go to a shard on `rank`, with a `share` of its ids; `rows` of the
  /// table's largest cut; `is_split`: bags may have ids in other shards.
  void add_ids(
      std::size_t rank, const FeatureUse& use, double share, std::int64_t rows, bool is_split);

  /// Rows that a fetched shard of `rows` is asked for by each rank of a kind.
  void add_unique_rows(std::size_t rank, std::size_t kind, std::int64_t rows, double asked);

  /// Bytes of vectors of a shard for each rank of a kind, and of the gradients that come back.
  void add_vectors(std::size_t rank, std::size_t kind, double vectors, double gradients);

  /// Between shards of the same rows, `rows` of which have a statistic.
  void add_statistics(std::span<const spec::Shard> beside, double rows);

  /// Bytes that a rank of a kind sends every other.
  void add_replica_rows(std::size_t kind, double bytes);

  /// Of replicas' rows that have owners: bytes of partial sums from each rank to each, and of sums.
  void add_owned_rows(double partials, double sums);

  /// Before held_bytes(), once all are there. `slots`: [ranks] of how many each rank serves others,
  /// of which a micro-batch has a piece each.
  void add_up(std::span<const std::int64_t> slots);

  /// Returns the bytes that the blocks of a rank take.
  [[nodiscard]] double held_bytes(std::size_t rank) const;

 private:
  HostLayout hosts_;
  const RankKinds& ranks_;
  Options options_;
  RelayedLanes ids_, vectors_, gradients_, to_owners_;
  bool has_owners_ = false;
  RelayedPairs statistics_;
  std::vector<double> replica_rows_;          // [kinds]
  std::vector<std::uint8_t> serves_several_;  // [ranks] whether it serves several slots
  std::vector<std::uint8_t> has_server_;      // [hosts] whether one of its ranks does
  int hosts_with_server_ = 0;
  std::optional<RelayedGather> replicas_;
};

}  // namespace weft::planner
