/// Private to planner/: what a shard, a replica and hot rows cost each rank that has them in a
/// step. The formulas are those of estimate.h. ShardLoads (shard_loads.h) knows the ones that were
/// asked for before.
#pragma once

#include <cstdint>

#include "weft/planner/hot_rows.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"

namespace weft::planner {

/// What a block costs the rank that holds it. O(features of the table · segments).
ShardLoad shard_cost(const StepShape& shape, const TableBlock& block);

/// Of a replica: what every rank does for a data_parallel table. ids_bytes and vector_bytes are 0;
/// statistic_bytes: of row gradients, to each other rank.
ShardLoad replica_cost(const StepShape& shape, std::int64_t table);

/// The same of a table's hot rows.
ShardLoad hot_rows_cost(const StepShape& shape,
                        std::int64_t table,
                        const HotUse& hot_use,
                        spec::PooledAt pooled_at);

/// Seconds of a shard for balancing: its work.
double work_s(const ShardLoad& load);

/// ... and its bytes on the slowest of the links that they take; of several groups also its share
/// of a sync.
double link_s(const StepShape& shape, const ShardLoad& load);

/// Bytes of buffers that a shard takes on its rank.
std::int64_t buffer_bytes(const StepShape& shape, const ShardLoad& load);

}  // namespace weft::planner
