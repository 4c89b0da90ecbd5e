#include "weft/planner/estimate.h"

#include <algorithm>

#include "weft/planner/shard_cost.h"
#include "weft/planner/shard_loads.h"
#include "weft/planner/step_cost.h"
#include "weft/topology/rates.h"

namespace weft::planner {

Estimator::Estimator(const spec::Config& config,
                     const topology::Cluster& cluster,
                     const Workload& workload,
                     std::int64_t parts)
    : shape_(step_shape(config, cluster, workload, parts)), hot_uses_(config, workload) {
}

Estimator::Estimator(const spec::Config& config,
                     const MeshCluster& mesh,
                     const Workload& workload,
                     std::int64_t parts)
    : shape_(step_shape(config, mesh, workload, parts)), hot_uses_(config, workload) {
}

ShardLoad Estimator::shard(const TableBlock& block) const {
  return shard_cost(shape_, block);
}

ShardLoad Estimator::replica(std::int64_t table) const {
  return replica_cost(shape_, table);
}

ShardLoad Estimator::hot_rows(std::int64_t table,
                              const HotUse& hot_use,
                              spec::PooledAt pooled_at) const {
  return hot_rows_cost(shape_, table, hot_use, pooled_at);
}

double Estimator::work_s(const ShardLoad& load) const {
  return planner::work_s(load);
}

double Estimator::link_s(const ShardLoad& load) const {
  return planner::link_s(shape_, load);
}

std::int64_t Estimator::buffer_bytes(const ShardLoad& load) const {
  return planner::buffer_bytes(shape_, load);
}

std::int64_t Estimator::capacity() const {
  const double beside = shape_.in_flight * shape_.matrix_bytes + shape_.dense_bytes;
  return static_cast<std::int64_t>(
      std::max(0.0, topology::table_capacity(shape_.cluster) - beside));
}

PlanCost Estimator::cost(const spec::Plan& plan) const {
  ShardLoads loads(shape_);
  return cost(plan, loads);
}

PlanCost Estimator::cost(const spec::Plan& plan, ShardLoads& loads) const {
  return step_cost(shape_, hot_uses_, plan, loads);
}

}  // namespace weft::planner
