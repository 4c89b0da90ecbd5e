/// Places tables on ranks. A pure function of the configuration and the number of ranks; links no
/// kernel and no communicator, so it runs anywhere in milliseconds.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// Who holds what, on `ranks` ranks. Requires a validated configuration.
///
/// data_parallel: the whole table on every rank. row_wise: rows piece(E, W, r) on rank r, ranks
/// with an empty piece hold none. column_wise: n = min(column_shards or W, W, ceil(D/16)) shards,
/// whose blocks of 16 columns are dealt by piece(ceil(D/16), n, i); the last takes the remainder.
/// table_wise (and auto): one shard, on `rank` where that is given.
///
/// What is not pinned is placed in decreasing order of load (ties: lower table index), each on the
/// least loaded rank (ties: lower rank); the column shards of one table go to different ranks.
/// Load is bytes of the rows × ids looked up per sample; it only orders, so a guess of the lengths
/// (max_length, or the synthetic column's mean) is enough.
///
/// Errors: kConfig where ranks < 1, numerics.parts < ranks, or a table's rank >= ranks.
spec::Plan make_plan(const spec::Config& config, std::int64_t ranks);

/// Throws Error(kConfig) unless the plan fits the configuration: same tables in the same order,
/// every row and column held exactly once (data_parallel: once per rank), ranks in range, columns
/// cut at multiples of 16 and on different ranks, shards in order, parts >= ranks.
void check_plan(const spec::Plan& plan, const spec::Config& config);

}  // namespace weft::planner
