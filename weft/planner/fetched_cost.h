/// Private to planner/: tables whose bags are added at the samples (docs/sharding.md, "Where bags
/// are added"): of a rank that asks for rows, and of the shard that has them.
#pragma once

#include <cstdint>

#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"
#include "weft/planner/workload.h"

namespace weft::planner {

/// What a rank asks of rows of a fetched table.
struct Asked {
  double rows = 0.0;      ///< different ones: u
  double partials = 0.0;  ///< of (row, whole subtree of the rank's parts): s
};

/// With `ids` ids of rows that are read as `held` says. O(subtrees · segments).
Asked asked(const StepShape& shape, const FeatureUse& held, double ids);

/// A block whose bags are added at the samples, without what cut columns add.
ShardLoad fetched_shard_cost(const StepShape& shape, const TableBlock& block);

/// Adds what every rank does at its samples for one such table.
void add_fetched_table(const StepShape& shape, PlanCost& cost, std::int64_t table);

}  // namespace weft::planner
