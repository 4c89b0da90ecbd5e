/// Private to planner/: what a whole step costs under a plan, memory included. The formulas are
/// those of estimate.h.
#pragma once

#include "weft/planner/hot_rows.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/shard_loads.h"
#include "weft/planner/step_shape.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// With what `loads` of the same shape knows already. Requires a checked plan for shape.ranks
/// ranks. O(shards + world ranks).
PlanCost step_cost(const StepShape& shape,
                   const HotUses& hot_uses,
                   const spec::Plan& plan,
                   ShardLoads& loads);

}  // namespace weft::planner
