/// A cluster as the ranks of one replica group see it (weft/spec/mesh.h).
///
/// Notation: M groups of N ranks, positions group · N + place. The layout says which ranks are a
/// group, so also which of its links are inside a host: those of the group's all-to-all by `group`,
/// those of a shard's replicas by `near`. All groups do the same at the same time, so where a host
/// has ranks of several, each has its share of the links of the host: its ranks over those of the
/// host. Groups that lie on hosts otherwise than the first, as groups of 3 on hosts of 2, are taken
/// to be as it is.
/// Plain values; pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/cost/exchange.h"
#include "weft/spec/mesh.h"
#include "weft/topology/cluster.h"

namespace weft::planner {

/// The cluster of a job and one of its replica groups, as mesh_cluster() makes them. Where there is
/// one group, `group` is `world` and `near` is 0.
struct MeshCluster {
  std::int64_t groups = 1;  ///< M
  spec::MeshLayout layout = spec::MeshLayout::kLocalAllToAll;
  spec::SyncForm sync = spec::SyncForm::kDense;  ///< never kAuto
  std::int64_t sync_every = 1;                   ///< τ
  topology::Cluster world;
  topology::Cluster group;      ///< of the first group; of one group the world
  topology::Group by_position;  ///< [ranks of the world] the rank at each position
  /// [ranks of the world] how many of the other replicas of its shards are on the rank's own host.
  std::vector<double> near;

  [[nodiscard]] std::int64_t ranks() const {  ///< N
    return static_cast<std::int64_t>(by_position.size()) / groups;
  }

  [[nodiscard]] bool averages() const { return groups > 1 && sync != spec::SyncForm::kGradients; }
};

/// `world` is checked; `groups` divides its ranks, and neither layout nor sync is kAuto. O(ranks).
MeshCluster mesh_cluster(const topology::Cluster& world, const spec::Mesh& mesh);

/// Whether the layout makes no difference: every group and every replica group lies on hosts alike
/// under both. One host, one rank on each, or groups of one rank or of all.
bool layouts_are_alike(const topology::Cluster& world, std::int64_t groups);

/// The replicas of every place exchange at the same time: each of place p sends bytes[p] to each
/// other. bytes: [N]. On the world. O(ranks).
cost::Exchange replica_exchange(const MeshCluster& mesh, std::span<const double> bytes);

}  // namespace weft::planner
