/// Which form the collectives of a plan should have.
#pragma once

#include "weft/planner/estimate.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// Sets plan.collectives: what the configuration asks for, or (auto) for ids, vectors and dense
/// gradients in turn the form with which the whole step is predicted to be shorter, flat where they
/// are equal or where every rank has room for the plan only so. Flat where hosts have one rank
/// each, or there is one (of dense gradients: of the world, of the others: of the replica group),
/// and with auto on more than 8,192 ranks, where estimates take long. Returns the plan's cost. At
/// most four estimates, with `loads` of the estimator.
PlanCost choose_forms(const Estimator& estimator,
                      const spec::Config& config,
                      spec::Plan& plan,
                      ShardLoads& loads);

}  // namespace weft::planner
