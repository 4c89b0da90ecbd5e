/// What a step costs under a plan: seconds of its parts on every rank, bytes on every link, memory.
///
/// Parts are those of a trace (docs/trace.md), so that what is predicted can be laid beside what
/// was measured. Between two exchanges every rank works by itself and all wait for the slowest:
///
///   step = Σ over stretches of max over ranks of the stretch's seconds
///        + Σ over exchanges of their seconds
///        with the dense all-reduce beside [flags .. row updates, sync] where train.overlap says
///        so: the longer of the two, and never less than both exchanges take on one link
///
/// Notation: B global batch, W ranks, L ids per sample, q share of the ids that fall on a shard's
/// rows, D its columns. A shard gets n = B L q ids, U = unique_rows of them different, and bags in
/// which at least one id falls on it: B present (1 - (1 - q)^(L / present)). It sends 4 D per bag
/// (or per id of a sequence) and gets as much back. Of bags that are added at the samples
/// (fetched_cost.h) each rank asks for u = unique_rows of its own ids, once each, and sends back s
/// partial gradients, one per row and whole subtree of its parts: the shard reads W u rows, sends
/// 4 D u to each rank and gets 4 D s. Hot rows (hot_rows.h) are looked up by every rank and
/// updated by all, as a table on every rank is; the shards get the other ids. Memory is exact for
/// tables and their state (layout::shard_bytes); step_memory.h has the buffers. Of a mesh of M
/// groups (mesh_cluster.h, mesh_cost.h) all this is one group's, which has W ranks, the batch and
/// the parts of its positions; dense gradients, flags, copies and hot rows are the world's, and
/// replicas of shards are synchronised, which counts by the step: what a sync takes over τ.
///
/// An Estimator keeps what the job fixes (step_shape.h) and the choices of hot rows that it was
/// asked for. What it predicts, values of plan_cost.h, is computed by functions of these that are
/// private to planner/, by topic: shard_cost.h, cache_cost.h, codec_cost.h, fetched_cost.h,
/// mesh_cost.h, sample_cost.h, step_exchanges.h and step_cost.h. All are pure, O(shards + W).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "weft/planner/hot_rows.h"
#include "weft/planner/mesh_cluster.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"
#include "weft/planner/workload.h"
#include "weft/spec/plan.h"
#include "weft/topology/cluster.h"

namespace weft::planner {

class ShardLoads;

/// Predicts the cost of shards and plans of one job on one cluster. Const methods may run on
/// several threads at once, each with a ShardLoads of its own.
class Estimator {
 public:
  /// All must outlive it. The cluster is checked, the configuration validated.
  Estimator(const spec::Config& config,
            const topology::Cluster& cluster,
            const Workload& workload,
            std::int64_t parts);

  /// Of a group of a mesh: plans are for its ranks. `parts`: of the whole batch.
  Estimator(const spec::Config& config,
            const MeshCluster& mesh,
            const Workload& workload,
            std::int64_t parts);

  /// What a block costs the rank that holds it.
  [[nodiscard]] ShardLoad shard(const TableBlock& block) const;

  /// Of a replica: what every rank does for a data_parallel table. ids_bytes and vector_bytes are
  /// 0; statistic_bytes: of row gradients, to each other rank.
  [[nodiscard]] ShardLoad replica(std::int64_t table) const;

  /// The same of a table's hot rows.
  [[nodiscard]] ShardLoad hot_rows(std::int64_t table,
                                   const HotUse& hot_use,
                                   spec::PooledAt pooled_at) const;

  /// How a table is read of which these rows are hot; null where none is.
  [[nodiscard]] std::shared_ptr<const HotUse> hot_use_of(std::int64_t table,
                                                         const std::vector<Range>& hot) const {
    return hot_uses_.of(table, hot);
  }

  /// Seconds of a shard for balancing: its work, and its bytes on the slowest of the links that
  /// they take; of several groups also its share of a sync.
  [[nodiscard]] double work_s(const ShardLoad& load) const;
  [[nodiscard]] double link_s(const ShardLoad& load) const;

  /// Their sum.
  [[nodiscard]] double scalar_s(const ShardLoad& load) const { return work_s(load) + link_s(load); }

  /// Bytes that tables and their exchange's buffers may take on a rank.
  [[nodiscard]] std::int64_t capacity() const;

  /// Buffers that a shard takes on its rank.
  [[nodiscard]] std::int64_t buffer_bytes(const ShardLoad& load) const;

  /// Returns the predicted cost of a step under the plan. Whether the plan fits is not asked.
  /// REQUIRES: a checked plan for ranks() ranks.
  [[nodiscard]] PlanCost cost(const spec::Plan& plan) const;

  /// The same, with what `loads` of this estimator knows already: for many plans of one job.
  [[nodiscard]] PlanCost cost(const spec::Plan& plan, ShardLoads& loads) const;

  [[nodiscard]] std::int64_t ranks() const { return shape_.ranks; }

  [[nodiscard]] std::int64_t world_ranks() const { return shape_.world_ranks; }

  /// Whether the hierarchical form of a group's collectives differs from the flat one.
  [[nodiscard]] bool has_hierarchy() const { return shape_.has_hierarchy; }

  /// The same of the sum of dense gradients, over the world.
  [[nodiscard]] bool has_dense_hierarchy() const { return shape_.has_dense_hierarchy; }

  /// As hierarchical_sum() says of the world's hosts.
  [[nodiscard]] spec::CollectiveForm hierarchical_dense() const {
    return shape_.hierarchical_dense;
  }

  [[nodiscard]] std::int64_t parts() const { return shape_.parts; }

  [[nodiscard]] const Workload& workload() const { return shape_.workload; }

  /// The choices of hot rows that were asked for.
  [[nodiscard]] const HotUses& hot_uses() const { return hot_uses_; }

  /// What the job fixes, for a ShardLoads. Valid as long as this.
  [[nodiscard]] const StepShape& shape() const { return shape_; }

 private:
  const StepShape shape_;
  HotUses hot_uses_;
};

}  // namespace weft::planner
