#include "weft/planner/step_shape.h"

#include <algorithm>

#include "weft/base/at.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/cost/exchange.h"
#include "weft/cost/hierarchical.h"
#include "weft/cost/memory.h"
#include "weft/planner/dense_memory.h"
#include "weft/planner/pipeline_choice.h"
#include "weft/planner/place.h"

namespace weft::planner {
namespace {

/// Matrices of this rank's samples: the vectors of all pooled features and the ids of sequences,
/// and as much again for their gradients.
double matrix_bytes(const StepShape& shape) {
  double columns = 0.0;
  for (const FeatureUse& use : shape.workload.features) {
    columns += static_cast<double>(shape.config.tables[at(use.table)].embedding_dim) *
               (use.pooled ? 1.0 : use.length);
  }
  return 2.0 * (cost::kFloatBytes * shape.samples * columns);
}

/// Of `count` equal shares of the batch, the first with most samples.
struct Busiest {
  std::int64_t index = 0;
  std::int64_t samples = 0;
};

Busiest busiest(const StepShape& shape, std::int64_t count) {
  Busiest most;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::int64_t samples =
        rank_samples(shape.config.batch_size, shape.parts, count, i).size();
    if (samples > most.samples) {
      most = {.index = i, .samples = samples};
    }
  }
  return most;
}

/// Shares of a run of parts that lie in its maximal subtrees.
std::vector<double> subtree_shares(std::int64_t parts, const Range& own) {
  std::vector<double> shares;
  for (const Range& subtree : maximal_subtrees(parts, own)) {
    shares.push_back(static_cast<double>(subtree.size()) / static_cast<double>(own.size()));
  }
  return shares;
}

void find_samples(StepShape& shape) {
  const Busiest rank = busiest(shape, shape.world_ranks);
  shape.samples = static_cast<double>(rank.samples);
  shape.subtrees =
      subtree_shares(shape.parts, rank_parts(shape.parts, shape.world_ranks, rank.index));
  if (shape.mesh == nullptr) {
    shape.batch = static_cast<double>(shape.config.batch_size);
    return;
  }
  const std::int64_t groups = shape.mesh->groups;
  const Busiest group = busiest(shape, groups);
  shape.batch = static_cast<double>(group.samples);
  shape.group_subtrees = subtree_shares(shape.parts, rank_parts(shape.parts, groups, group.index));
}

void find_uses(StepShape& shape) {
  shape.by_table.resize(shape.config.tables.size());
  for (const FeatureUse& use : shape.workload.features) {
    shape.by_table[at(use.table)].push_back(&use);
  }
  for (const std::vector<const FeatureUse*>& uses : shape.by_table) {
    shape.joined.push_back(uses.empty() ? unread() : joined(uses));
  }
}

/// `mesh`: null, or of several groups, of which `cluster` is one.
HostLayout host_layout(const topology::Cluster& cluster, const topology::Group& group) {
  std::vector<int> hosts;
  for (const std::int64_t rank : group) {
    hosts.push_back(static_cast<int>(topology::host_of(cluster, rank)));
  }
  return HostLayout(hosts);
}

StepShape make(const spec::Config& config,
               const topology::Cluster& cluster,
               const MeshCluster* mesh,
               const Workload& workload,
               std::int64_t parts) {
  const topology::Group all = topology::all_ranks(cluster);
  StepShape shape{.config = config,
                  .cluster = cluster,
                  .workload = workload,
                  .mesh = mesh,
                  .world = mesh == nullptr ? cluster : mesh->world,
                  .ranks = topology::ranks(cluster),
                  .everybody = mesh == nullptr ? all : mesh->by_position,
                  .has_hierarchy = cost::has_hierarchy(cluster, all),
                  .parts = parts};
  shape.world_ranks = topology::ranks(shape.world);
  shape.has_dense_hierarchy =
      mesh == nullptr ? shape.has_hierarchy : cost::has_hierarchy(shape.world, shape.everybody);
  shape.hierarchical_dense = hierarchical_sum(host_layout(shape.world, shape.everybody));
  find_samples(shape);
  // Vectors are written and their gradients read again and again between other stages: what of both
  // matrices the caches do not hold is fetched each time.
  shape.matrix_bytes = matrix_bytes(shape);
  shape.in_flight = static_cast<double>(batches_in_flight(config.pipeline));
  shape.cold = shape.matrix_bytes > 0.0
                   ? std::max(0.0, 1.0 - cluster.compute.cache.value / shape.matrix_bytes)
                   : 0.0;
  shape.dense_bytes = dense_memory(config, workload,
                                   {.parts = parts,
                                    .ranks = shape.world_ranks,
                                    .rank = 0,
                                    .threads = cluster.threads,
                                    .lent = topology::hosts(shape.world) == 1})
                          .bytes();
  find_uses(shape);
  return shape;
}

}  // namespace

StepShape step_shape(const spec::Config& config,
                     const topology::Cluster& cluster,
                     const Workload& workload,
                     std::int64_t parts) {
  return make(config, cluster, nullptr, workload, parts);
}

StepShape step_shape(const spec::Config& config,
                     const MeshCluster& mesh,
                     const Workload& workload,
                     std::int64_t parts) {
  return make(config, mesh.group, mesh.groups == 1 ? nullptr : &mesh, workload, parts);
}

}  // namespace weft::planner
