/// Places tables on ranks. A pure function of the configuration and of which ranks share a host;
/// links no kernel and no communicator, so it runs anywhere in milliseconds.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// What a plan is made for.
struct PlanTarget {
  std::int64_t ranks = 1;
  std::vector<std::int64_t> hosts = {};  ///< [ranks] equal where ranks share a host; empty: all do
};

/// Host of each rank as plans have it: numbered by their first ranks; empty where there is one.
std::vector<std::int64_t> host_numbers(const PlanTarget& target);

/// Who holds what. Requires a validated configuration. Hosts are numbered by their first ranks,
/// whatever the numbers in `target`.
///
/// data_parallel: the whole table on every rank. row_wise: rows piece(E, W, r) on rank r, ranks
/// with an empty piece hold none. column_wise: n = min(column_shards or W, W, ceil(D/16)) shards,
/// whose blocks of 16 columns are dealt by piece(ceil(D/16), n, i); the last takes the remainder.
/// table_wise (and auto): one shard, on `rank` where that is given. table_row_wise and
/// table_column_wise: as row_wise and column_wise, over the ranks of one host, `host` where that is
/// given.
/// grid_shard: C = min(column_shards or number of hosts, ceil(D/16)) cuts of columns are dealt over
/// hosts, each cut over R ranks of its host by rows piece(E, R, r). Every cut of columns has the
/// same rows: R is what the ranks of the most crowded of these hosts suffice for, at most E. C is
/// lowered where R would be 0.
///
/// With row_split modulo cut k of n rows, n at most E, has rows k, k + n, ... instead.
///
/// What is not pinned is placed in decreasing order of load (ties: lower table index): first the
/// least loaded hosts (mean of their ranks), where a scheme asks for hosts, then the least loaded
/// ranks (ties: lower number); no rank holds two shards of a table. Load is bytes of the rows × ids
/// looked up per sample; it only orders, so a guess of the lengths (max_length, or the synthetic
/// column's mean) is enough.
///
/// Errors: kConfig where ranks < 1, numerics.parts < ranks, or a table's rank or host is not there.
spec::Plan make_plan(const spec::Config& config, const PlanTarget& target);

/// The same for ranks of one host.
inline spec::Plan make_plan(const spec::Config& config, std::int64_t ranks) {
  return make_plan(config, PlanTarget{.ranks = ranks});
}

/// Throws Error(kConfig) unless the plan fits the configuration: same tables in the same order,
/// every row and column held exactly once (data_parallel: once per rank), ranks in range, columns
/// cut at multiples of 16, shards in order, on the ranks of one host where the scheme says so;
/// shards form a grid, and those of the same rows, which exchange row statistics, are on different
/// ranks; parts >= ranks.
void check_plan(const spec::Plan& plan, const spec::Config& config);

}  // namespace weft::planner
