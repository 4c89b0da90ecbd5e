/// Bytes and seconds of the hierarchical forms of collectives (weft/comm/relays.h,
/// docs/collectives.md): stages one after the other, each an exchange of its own.
///
/// Notation: G ranks of a group on H hosts, g_A of them on host A. The formulas are those of
/// docs/collectives.md; bytes of whole numbers are exact, and equal to what a Communicator counts.
/// What a relay keeps of its own lanes is in class `self`.
///
/// All functions are pure. Cost: relayed(), relayed_blocks() and relayed_all_gather() O(G + H²),
/// hierarchical_all_reduce() O(G) for every different g_A. Require a checked cluster and groups of
/// its ranks.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/cost/exchange.h"
#include "weft/topology/cluster.h"

namespace weft::cost {

/// Returns which rank of the group is on which host.
HostLayout host_layout(const topology::Cluster& cluster, const topology::Group& group);

/// Whether the hierarchical form differs from the flat one: several hosts, and any of them with
/// several ranks of the group.
bool has_hierarchy(const topology::Cluster& cluster, const topology::Group& group);

/// Sizes, gather, cross, scatter.
struct Staged {
  std::array<Exchange, 4> stages;
};

/// The all_to_all in which the group's i-th rank sends from[i] · to[j] bytes to its j-th.
Staged relayed(const topology::Cluster& cluster,
               const topology::Group& group,
               std::span<const double> from,
               std::span<const double> to,
               EmptyLanes empty = EmptyLanes::kSent);

/// A lane of an exchange: the group's rank `from` sends its rank `to` so many bytes.
struct LaneBytes {
  std::int64_t from = 0;
  std::int64_t to = 0;
  double bytes = 0.0;
};

/// The exchange of these lanes, each between another pair of different ranks; all other lanes are
/// silent. The group has several hosts (has_hierarchy()). O(G + H² + n log n) of n lanes. Throws
/// Error(kInternal) on a lane from a rank to itself or of a rank that the group does not have.
Staged relayed_lanes(const topology::Cluster& cluster,
                     const topology::Group& group,
                     std::span<const LaneBytes> lanes);

/// The all_to_all of blocks of `bytes`, whose sizes nobody has to tell: gather, cross, scatter.
std::array<Exchange, 3> relayed_blocks(const topology::Cluster& cluster,
                                       const topology::Group& group,
                                       double bytes);

/// The group's i-th rank contributes bytes[i], which cross once for each pair of hosts.
Staged relayed_all_gather(const topology::Cluster& cluster,
                          const topology::Group& group,
                          std::span<const double> bytes,
                          EmptyLanes empty = EmptyLanes::kSent);

/// The traffic of a hierarchical all-reduce.
struct StagedAllReduce {
  std::vector<Exchange> stages;  ///< collect, combine, return, spread; where slices cross by relays
                                 ///< collect, combine, pass on, share, return, spread
  double added_bytes = 0;        ///< read and written by the additions of the rank with most
  double coded_bytes = 0;        ///< the same of encoding and decoding slices
};

/// The sum of `count` floats over the group; `wire`: of partial sums between hosts, and of sums.
/// Where slices cross by relays O(H²) besides.
StagedAllReduce hierarchical_all_reduce(const topology::Cluster& cluster,
                                        const topology::Group& group,
                                        std::int64_t parts,
                                        std::int64_t count,
                                        const ReduceWire& wire = {});

/// All stages as one exchange: bytes and messages, not time.
Exchange total(std::span<const Exchange> stages);

/// The same of four stages.
inline Exchange total(const Staged& staged) {
  return total(staged.stages);
}

/// The stages one after the other.
double exchange_s(const topology::Cluster& cluster, std::span<const Exchange> stages);

/// The same of four stages.
inline double exchange_s(const topology::Cluster& cluster, const Staged& staged) {
  return exchange_s(cluster, staged.stages);
}

/// And the additions, and what is encoded and decoded, at the rate of a copy.
double all_reduce_s(const topology::Cluster& cluster, const StagedAllReduce& reduce);

}  // namespace weft::cost
