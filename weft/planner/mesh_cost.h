/// Private to planner/: what replica groups add to a step (docs/2d.md): the sync of a shard's
/// replicas, by its form, and the control blocks that groups exchange. Bytes are those of
/// weft/cost/replicas.h.
///
/// Notation: M groups, τ steps from sync to sync, R rows of a shard, n ids of a group in a step, x
/// bytes of a row with its state, D columns. Rows touched since the last sync: by one group
/// U = unique_rows(τ n), by any V = unique_rows(τ M n). A sync averages R or V rows in two even
/// exchanges among the M replicas of every shard, as many times as it has 64 MiB. Its own work:
///
///   dense      copy(2 R x): its share of every replica is read and of the average written, and
///              what the others have averaged
///   touched    V update(x) + copy(V x): the same at random places; sorting lists is not counted
///              With codecs.sync x of what travels is that of the codes, and values, copies and
///              residuals of every row are copied besides
///   gradients  every step: own partial rows are written, those of all groups sorted and added up
///              before one update, as those of a replica
#pragma once

#include <cstdint>

#include "weft/cost/tables.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"
#include "weft/planner/workload.h"

namespace weft::planner {

/// Of a shard: who asks, and what its own group does with it in a step.
struct GroupWork {
  std::int64_t table = 0;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  const FeatureUse& held;  ///< of ids that fall on these rows
  double ids = 0.0;        ///< of them
  const cost::ShardWork& update;
};

/// Adds the sync of a shard's replicas: what a load has of a mesh of several groups, and with sync
/// gradients the update of rows of all groups in place of the group's own. Nothing of one group.
void add_sync(const StepShape& shape, ShardLoad& load, const GroupWork& work);

/// Seconds of a sync per step: a load's work and its bytes on the links. Of several groups.
double sync_link_s(const StepShape& shape, const ShardLoad& load);

/// Bytes that the sync takes on a rank with this load. Of several groups.
double sync_memory(const StepShape& shape, const ShardLoad& load);

/// Adds the exchanges between groups, after those of a group's own (step_exchanges.h).
void add_mesh_exchanges(const StepShape& shape, PlanCost& cost, const spec::Plan& plan);

}  // namespace weft::planner
