/// Places tables on ranks. A pure function of the configuration and of which ranks share a host;
/// links no kernel and no communicator, so it runs anywhere in milliseconds.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/host_layout.h"
#include "weft/planner/workload.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// What a plan is made for.
struct RankLayout {
  std::int64_t ranks = 1;
  std::vector<std::int64_t> hosts = {};  ///< [ranks] equal where ranks share a host; empty: all do
};

/// Host of each rank as plans have it: numbered by their first ranks; empty where there is one.
std::vector<std::int64_t> host_numbers(const RankLayout& layout);

/// The hierarchical form of the dense sum on these hosts: through relays where a rank would
/// otherwise send more than 64 messages in one exchange.
inline spec::CollectiveForm hierarchical_sum(const HostLayout& hosts) {
  constexpr int kMostMessages = 64;
  return hosts.most_direct_messages() > kMostMessages ? spec::CollectiveForm::kRelayed
                                                      : spec::CollectiveForm::kHierarchical;
}

/// The ranks of the first `count` positions of the mesh, in their order (weft/spec/mesh.h): group 0
/// of a table where that many are one of its groups. Throws Error(kConfig) where the mesh's groups
/// do not divide the ranks of the world. Groups that are left to a search are one.
RankLayout first_positions(const spec::Mesh& mesh, const RankLayout& world, std::int64_t count);

/// Those of group 0 of the mesh.
RankLayout first_group(const spec::Mesh& mesh, const RankLayout& world);

/// Who holds what (K = spec::column_cut()), on the ranks of the world `layout`. Of a mesh of
/// several groups: on those of the first one, and every other alike, so the schemes below are over
/// its ranks; of a table with fewer groups over those of its first one, the first positions.
/// Requires a validated configuration. Hosts are numbered by their first ranks, whatever the
/// numbers in `layout`.
///
/// data_parallel: the whole table on every rank; also of auto tables that may be nothing else
/// (`allow`). row_wise: rows piece(E, W, r) on rank r, ranks
/// with an empty piece hold none. column_wise: n = min(column_shards or W, W, ceil(D/K)) shards,
/// whose blocks of K columns are dealt by piece(ceil(D/K), n, i); the last takes the remainder.
/// table_wise (and auto): one shard, on `rank` where that is given. table_row_wise and
/// table_column_wise: as row_wise and column_wise, over the ranks of one host, `host` where that is
/// given.
/// grid_shard: C = min(column_shards or number of hosts, ceil(D/K)) cuts of columns are dealt over
/// hosts, each cut over R ranks of its host by rows piece(E, R, r). Every cut of columns has the
/// same rows: R is what the ranks of the most crowded of these hosts suffice for, at most E. C is
/// lowered where R would be 0.
///
/// With row_split modulo cut k of n rows, n at most E, has rows k, k + n, ... instead.
///
/// Collectives are hierarchical, where hosts have several ranks, with `collectives: hierarchical`
/// and, of more than 64 ranks, with auto; else flat. The dense sum is as hierarchical_sum() says.
///
/// What is not pinned is placed in decreasing order of load (ties: lower table index): first the
/// least loaded hosts (mean of their ranks), where a scheme asks for hosts, then the least loaded
/// ranks (ties: lower number); no rank holds two shards of a table. Load is a table's share of the
/// bytes of all rows and its share of the bytes that a sample looks up, added up: where whole
/// tables may go anywhere, a rank's load is at most 2 / W and that of the table that came last on
/// it, so it has about twice the mean of either at most. It only orders, so a guess of the lengths
/// (max_length, or the synthetic column's mean) is enough. Where tables have different numbers of
/// groups, a place is as loaded as the most loaded of the positions that have it.
///
/// Of a table with the key hot_rows so many of the most frequent rows are hot (hottest_rows() in
/// hot_rows.h): those of `hot_rows` ([tables], or empty), or of its vocabulary.
///
/// Errors: kConfig where ranks < 1, numerics.parts < ranks, a table's rank or host is not there, or
/// nobody knows its hot rows.
spec::Plan make_plan(const spec::Config& config,
                     const RankLayout& layout,
                     const std::vector<HotRows>& hot_rows = {});

/// The same for ranks of one host.
inline spec::Plan make_plan(const spec::Config& config, std::int64_t ranks) {
  return make_plan(config, RankLayout{.ranks = ranks});
}

/// Shards of one table of a scheme whose place make_plan() finds, on the least loaded hosts and
/// ranks; columns are cut at multiples of `cut`; [ranks] `loads` in any unit. The table's `host`
/// counts.
std::vector<spec::Shard> place_table(const spec::Table& table,
                                     std::int64_t cut,
                                     const RankLayout& layout,
                                     std::span<const double> loads);

/// Throws Error(kConfig) unless the plan fits the configuration: same tables in the same order,
/// every row and column held exactly once (data_parallel: once per rank), ranks in range, columns
/// cut at multiples of K, shards in order, on the ranks of one host where the scheme says so;
/// shards form a grid, and those of the same rows, which exchange row statistics, are on different
/// ranks; hot rows ascend, and no data_parallel table has any; parts >= ranks; hosts numbered by
/// their first ranks; as many replica groups, of the mesh and of each table, and layout and sync as
/// configured where that says them. Ranks of a table are those of one of its groups. And what
/// check_caches() asks for.
void check_plan(const spec::Plan& plan, const spec::Config& config);

/// Throws Error(kConfig) unless the plan has no caches (TablePlan::caches), or one of every shard
/// that shares Tiers::cache_bytes and of no other, of a byte at least and together no more than
/// that on any rank, and the configuration does not ask for a division by bytes. REQUIRES: shards
/// that fit the configuration.
void check_caches(const spec::Plan& plan, const spec::Config& config);

/// Throws Error(kConfig) naming key, both values and what to do, where a plan that check_plan()
/// takes contradicts a key of the configuration that is not its default: a table's sharding, allow,
/// rank, host, row_split, pooled_at, hot_rows, column_shards, or collectives. A plan's replica
/// groups and layout are check_plan()'s.
void check_pins(const spec::Plan& plan, const spec::Config& config);

/// Whether a table with sharding auto may be one shard: unless it may be data_parallel only.
bool may_be_whole(const spec::Table& table);

}  // namespace weft::planner
