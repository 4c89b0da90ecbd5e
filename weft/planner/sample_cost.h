/// Private to planner/: what ranks do with the ids and vectors of their own samples, whoever holds
/// the rows: they pack and unpack ids, copy vectors to where they are needed and add bags up.
///
/// The codecs at the sample: vectors that come are decoded to where they are needed, gradients
/// encoded from where they lie. What a rank has for itself passes through both in its matrices,
/// empty bags too (docs/codecs.md). The other ends are in ShardLoad.
#pragma once

#include "weft/planner/hot_rows.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// Adds to the seconds of every rank, of which `cost` has the loads of its shards without replicas.
/// O(features · ranks + shards).
void add_batch_work(const StepShape& shape,
                    PlanCost& cost,
                    const spec::Plan& plan,
                    const HotUses& hot_uses);

}  // namespace weft::planner
