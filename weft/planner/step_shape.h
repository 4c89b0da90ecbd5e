/// What a job on a cluster fixes of its steps, whatever the plan: who the ranks are, what samples
/// and ids a rank and a group have, and how the tables are read. An Estimator (estimate.h) makes it
/// once; what a shard or a step costs is computed from it.
/// A plain value, never changed after step_shape() has made it; pure functions.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/planner/mesh_cluster.h"
#include "weft/planner/workload.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/topology/cluster.h"

namespace weft::planner {

/// Of one replica group, or of all ranks where there is one. References are to the arguments of
/// step_shape(), which outlive it; `mesh` and `world` point there as well.
struct StepShape {
  const spec::Config& config;
  const topology::Cluster& cluster;  ///< of the group
  const Workload& workload;
  const MeshCluster* mesh;         ///< null: one group
  const topology::Cluster& world;  ///< of all groups

  std::int64_t ranks = 1;  ///< of the group
  std::int64_t world_ranks = 1;
  topology::Group everybody = {};    ///< [world_ranks] ranks of the world by position
  bool has_hierarchy = false;        ///< whether the forms of a group's collectives differ
  bool has_dense_hierarchy = false;  ///< and of those over the world
  spec::CollectiveForm hierarchical_dense = spec::CollectiveForm::kHierarchical;  ///< where it does

  std::int64_t parts = 0;                   ///< of the whole batch
  double samples = 0.0;                     ///< of the rank with most
  double batch = 0.0;                       ///< of the group, of several the one with most samples
  std::vector<double> subtrees = {};        ///< shares of a rank's samples in its whole subtrees
  std::vector<double> group_subtrees = {};  ///< the same of a group, of several
  double in_flight = 1.0;     ///< batches that have memory, where the configuration says a schedule
  double matrix_bytes = 0.0;  ///< vectors and gradients of `samples`: of pooled features and ids
  double cold = 1.0;          ///< share of these vectors that no cache holds
  double dense_bytes = 0.0;   ///< the dense side's memory on the first rank, which has most samples

  std::vector<std::vector<const FeatureUse*>> by_table = {};  ///< [tables] features that read it
  std::vector<FeatureUse> joined = {};  ///< [tables] these as one; of a table nobody reads no ids
};

/// Of a job on one cluster, in one group. The configuration is validated, the cluster checked.
/// O(world ranks + features).
StepShape step_shape(const spec::Config& config,
                     const topology::Cluster& cluster,
                     const Workload& workload,
                     std::int64_t parts);

/// Of a group of a mesh; of one group the same as above on its cluster.
StepShape step_shape(const spec::Config& config,
                     const MeshCluster& mesh,
                     const Workload& workload,
                     std::int64_t parts);

}  // namespace weft::planner
