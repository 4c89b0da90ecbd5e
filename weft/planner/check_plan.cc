#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/layout/tables.h"
#include "weft/planner/place.h"

namespace weft::planner {
namespace {

using spec::Shard;
using spec::Sharding;

std::string text(const Range& range) {
  return fmt::format("[{}, {})", range.begin, range.end);
}

std::string text(const RowSet& rows) {
  return rows.step == 1 ? text(Range{rows.begin, rows.end})
                        : fmt::format("[{}, {}) in steps of {}", rows.begin, rows.end, rows.step);
}

template <typename... Args>
[[noreturn]] void refuse(const spec::Table& table,
                         fmt::format_string<Args...> format,
                         Args&&... args) {
  throw Error(ErrorCode::kConfig,
              fmt::format("the plan of table {}: {}; make a new plan for this configuration",
                          table.name, fmt::format(format, std::forward<Args>(args)...)));
}

void check_shard(const spec::Table& table,
                 const Shard& shard,
                 std::int64_t ranks,
                 std::int64_t cut) {
  const auto inside = [](const auto& range, std::int64_t end) {
    return range.begin >= 0 && range.begin < range.end && range.end <= end;
  };
  if (shard.rank < 0 || shard.rank >= ranks) {
    refuse(table, "rank {} is not among the {} ranks", shard.rank, ranks);
  }
  if (!inside(shard.rows, table.num_embeddings) || shard.rows.step < 1 ||
      !inside(shard.cols, table.embedding_dim)) {
    refuse(table, "the block of rows {} and columns {} is empty or outside [{}, {}]",
           text(shard.rows), text(shard.cols), table.num_embeddings, table.embedding_dim);
  }
  if (shard.cols.begin % cut != 0 ||
      (shard.cols.end % cut != 0 && shard.cols.end != table.embedding_dim)) {
    refuse(table, "columns {} are not cut at multiples of {}{}", text(shard.cols), cut,
           cut > spec::kColumnBlock ? ", of 16 and of codecs.group_size" : "");
  }
}

/// Every shard whole, one per rank, in the order of ranks.
void check_data_parallel(const spec::Table& table,
                         const spec::TablePlan& plan,
                         std::int64_t ranks) {
  if (static_cast<std::int64_t>(plan.shards.size()) != ranks) {
    refuse(table, "data_parallel on {} ranks has {} shards", ranks, plan.shards.size());
  }
  for (std::size_t i = 0; i < plan.shards.size(); ++i) {
    const Shard& shard = plan.shards[i];
    if (shard.rank != static_cast<std::int64_t>(i) ||
        shard.rows != Range{0, table.num_embeddings} ||
        shard.cols != Range{0, table.embedding_dim}) {
      refuse(table, "data_parallel needs the whole table on every rank in order; shard {} is not",
             i);
    }
  }
}

/// Cuts of rows in their order: ranges that follow each other, or every n-th row from each of the
/// first n on.
void check_rows(const spec::Table& table, const std::vector<RowSet>& cuts) {
  const auto count = static_cast<std::int64_t>(cuts.size());
  if (count > 1 && cuts.front().step > 1) {
    for (std::int64_t k = 0; k < count; ++k) {
      const RowSet& rows = cuts[static_cast<std::size_t>(k)];
      if (rows != RowSet(k, table.num_embeddings, count)) {
        refuse(table, "rows {} are number {} of {} cuts, which should be {}", text(rows), k, count,
               text(RowSet(k, table.num_embeddings, count)));
      }
    }
    return;
  }
  std::int64_t next = 0;
  for (const RowSet& rows : cuts) {
    if (rows.step != 1) {
      refuse(table, "rows {} stand beside ranges, or alone; cut all rows by one rule", text(rows));
    }
    if (rows.begin != next) {
      refuse(table, "rows from {} are held by no shard, or twice, or out of order", next);
    }
    next = rows.end;
  }
  if (next != table.num_embeddings) {
    refuse(table, "rows from {} to {} are held by no shard", next, table.num_embeddings);
  }
}

/// Shards of whole rows.
void check_row_cuts(const spec::Table& table, const spec::TablePlan& plan) {
  std::vector<RowSet> cuts;
  for (const Shard& shard : plan.shards) {
    if (shard.cols != Range{0, table.embedding_dim}) {
      refuse(table, "a shard holds columns {} of {}", text(shard.cols), table.embedding_dim);
    }
    cuts.push_back(shard.rows);
  }
  check_rows(table, cuts);
}

/// Shards of all rows.
void check_column_cuts(const spec::Table& table, const spec::TablePlan& plan) {
  std::int64_t next = 0;
  for (const Shard& shard : plan.shards) {
    if (shard.rows != Range{0, table.num_embeddings}) {
      refuse(table, "a shard holds rows {} of {}", text(shard.rows), table.num_embeddings);
    }
    if (shard.cols.begin != next) {
      refuse(table, "columns from {} are held by no shard, or twice, or out of order", next);
    }
    next = shard.cols.end;
  }
  if (next != table.embedding_dim) {
    refuse(table, "columns from {} to {} are held by no shard", next, table.embedding_dim);
  }
}

/// How many shards have the rows of shard `first`, which they follow.
std::size_t same_rows(const spec::TablePlan& plan, std::size_t first) {
  std::size_t count = 1;
  while (first + count < plan.shards.size() &&
         plan.shards[first + count].rows == plan.shards[first].rows) {
    ++count;
  }
  return count;
}

/// Shards of the same rows exchange row statistics between ranks, so no rank holds two of them.
/// Requires that shards of the same rows follow each other. O(n log n): a grid has many shards.
void check_different_ranks(const spec::Table& table, const spec::TablePlan& plan) {
  std::map<std::int64_t, Range> held;  // columns by rank, of the rows in hand
  std::optional<RowSet> rows;
  for (const Shard& shard : plan.shards) {
    if (!rows || shard.rows != *rows) {
      held.clear();
    }
    rows = shard.rows;
    const auto [other, is_new] = held.try_emplace(shard.rank, shard.cols);
    if (!is_new) {
      refuse(table, "rank {} holds two column shards, {} and {}; join them", shard.rank,
             text(other->second), text(shard.cols));
    }
  }
}

/// Cuts of rows, each with the same cuts of columns.
void check_grid(const spec::Table& table, const spec::TablePlan& plan) {
  const std::size_t columns = plan.shards.empty() ? 1 : same_rows(plan, 0);
  std::vector<RowSet> cuts;
  for (std::size_t first = 0; first < plan.shards.size(); first += columns) {
    const RowSet rows = plan.shards[first].rows;
    cuts.push_back(rows);
    const std::size_t count = same_rows(plan, first);
    if (count != columns) {
      refuse(table,
             "rows {} are in {} shards and rows {} in {}; a grid cuts all rows at the same "
             "columns",
             text(plan.shards.front().rows), columns, text(rows), count);
    }
    for (std::size_t c = 0; c < columns; ++c) {
      const Range cols = plan.shards[first + c].cols;
      const std::int64_t next = c == 0 ? 0 : plan.shards[first + c - 1].cols.end;
      if (cols.begin != next) {
        refuse(table, "of rows {}, columns from {} are held by no shard, or twice, or out of order",
               text(rows), next);
      }
      if (cols != plan.shards[c].cols) {
        refuse(table,
               "rows {} are cut at columns {} and rows {} at {}; a grid cuts all rows at "
               "the same columns",
               text(plan.shards.front().rows), text(plan.shards[c].cols), text(rows), text(cols));
      }
    }
    if (plan.shards[first + columns - 1].cols.end != table.embedding_dim) {
      refuse(table, "of rows {}, columns from {} to {} are held by no shard", text(rows),
             plan.shards[first + columns - 1].cols.end, table.embedding_dim);
    }
  }
  check_rows(table, cuts);
}

void check_one_host(const spec::Table& table,
                    const spec::TablePlan& plan,
                    const std::vector<std::int64_t>& hosts) {
  const auto host = [&](const Shard& shard) {
    return hosts.empty() ? 0 : hosts[static_cast<std::size_t>(shard.rank)];
  };
  for (const Shard& shard : plan.shards) {
    if (host(shard) != host(plan.shards.front())) {
      refuse(table, "{} is for the ranks of one host, and ranks {} and {} are on hosts {} and {}",
             plan.sharding == Sharding::kTableRowWise ? "table_row_wise" : "table_column_wise",
             plan.shards.front().rank, shard.rank, host(plan.shards.front()), host(shard));
    }
  }
}

/// Ranges of rows in the one form in which a set of rows can be written.
void check_hot_rows(const spec::Table& table, const spec::TablePlan& plan) {
  if (!plan.hot.empty() && plan.sharding == Sharding::kDataParallel) {
    refuse(table, "data_parallel has all rows on every rank, and hot rows besides");
  }
  std::int64_t next = 0;  // first row that the next range may have
  for (const Range& rows : plan.hot) {
    if (rows.begin < 0 || rows.begin >= rows.end || rows.end > table.num_embeddings) {
      refuse(table, "hot rows {} are none, or outside [0, {})", text(rows), table.num_embeddings);
    }
    if (rows.begin < next) {
      refuse(table, "hot rows {} touch or precede those before; hot rows ascend", text(rows));
    }
    next = rows.end + 1;
  }
}

void check_table(const spec::Table& table,
                 const spec::TablePlan& plan,
                 const spec::Plan& whole,
                 std::int64_t cut) {
  const std::int64_t ranks = whole.ranks_of(plan);
  for (const Shard& shard : plan.shards) {
    check_shard(table, shard, ranks, cut);
  }
  check_hot_rows(table, plan);
  if (plan.pooled_at == spec::PooledAt::kSample && plan.hot.empty() &&
      plan.sharding != Sharding::kRowWise && plan.sharding != Sharding::kTableRowWise &&
      plan.sharding != Sharding::kGridShard) {
    refuse(table, "pooled_at: sample is for tables whose rows are cut, or that have hot rows");
  }
  switch (plan.sharding) {
    case Sharding::kAuto:
      refuse(table, "its sharding is not resolved");
    case Sharding::kDataParallel:
      return check_data_parallel(table, plan, ranks);
    case Sharding::kTableWise:
      if (plan.shards.size() != 1) {
        refuse(table, "table_wise has {} shards, not one", plan.shards.size());
      }
      break;
    case Sharding::kRowWise:
      break;
    case Sharding::kTableRowWise:
      check_one_host(table, plan, whole.hosts);
      break;
    case Sharding::kTableColumnWise:
      check_one_host(table, plan, whole.hosts);
      [[fallthrough]];
    case Sharding::kColumnWise:
      check_column_cuts(table, plan);
      return check_different_ranks(table, plan);
    case Sharding::kGridShard:
      check_grid(table, plan);
      return check_different_ranks(table, plan);
  }
  check_row_cuts(table, plan);
}

/// Bytes of caches that share a rank's, by the position of the mesh. O(shards · positions).
std::vector<std::int64_t> shared_caches(const spec::Plan& plan) {
  constexpr std::int64_t kMostCaches = std::int64_t{1} << 62;  // far from overflow
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(plan.most_ranks()));
  for (const spec::TablePlan& table : plan.tables) {
    for (std::size_t i = 0; i < table.caches.size(); ++i) {
      for (std::int64_t p = table.shards[i].rank; p < plan.most_ranks();
           p += plan.ranks_of(table)) {
        std::int64_t& sum = bytes[static_cast<std::size_t>(p)];
        sum = std::min(sum + table.caches[i], kMostCaches);
      }
    }
  }
  return bytes;
}

/// What the plan and the configuration say together of the sync.
void check_sync(const spec::Plan& plan, const spec::Config& config) {
  const spec::Mesh& mesh = config.mesh;
  if (mesh.sync != spec::SyncForm::kAuto && plan.sync != spec::SyncForm::kAuto &&
      mesh.sync != plan.sync) {
    fail(ErrorCode::kConfig,
         "the plan's sync is {} and mesh.sync is {}; set mesh.sync=auto, or make a new plan",
         to_string(plan.sync), to_string(mesh.sync));
  }
  if (mesh.sync_every != 0 && plan.sync_every != 0 && mesh.sync_every != plan.sync_every) {
    fail(ErrorCode::kConfig,
         "the plan's sync_every is {} and mesh.sync_every is {}; set mesh.sync_every=0, or make a "
         "new plan",
         plan.sync_every, mesh.sync_every);
  }
  const spec::Mesh both = spec::mesh_of(mesh, plan);
  if (both.sync == spec::SyncForm::kGradients && both.sync_every > 1) {
    fail(ErrorCode::kConfig,
         "{} is {}, and with sync gradients{} replicas never part; make a new plan{}",
         mesh.sync_every != 0 ? "mesh.sync_every" : "the plan's sync_every", both.sync_every,
         mesh.sync == spec::SyncForm::kAuto ? " of the plan" : "",
         mesh.sync_every != 0 ? ", or set mesh.sync_every=1" : "");
  }
  if (both.sync == spec::SyncForm::kGradients && config.codecs.sync != CodecFormat::kFp32) {
    fail(ErrorCode::kConfig,
         "codecs.sync is for replicas that are averaged, and with the plan's sync gradients there "
         "are none; set codecs.sync=fp32, or make a new plan");
  }
  if (!both.syncs_after(config.train.eval_every)) {
    fail(ErrorCode::kConfig,
         "train.eval_every is {}, no multiple of the {} steps from sync to sync of the plan, and "
         "replicas are equal at syncs only; make a new plan",
         config.train.eval_every, both.sync_every);
  }
}

void check_mesh(const spec::Plan& plan, const spec::Mesh& mesh) {
  if (plan.layout == spec::MeshLayout::kAuto) {
    fail(ErrorCode::kConfig, "the plan's layout is not resolved; make a new plan");
  }
  if (mesh.groups != 0 && plan.groups != mesh.groups) {
    fail(ErrorCode::kConfig,
         "the plan is for {} replica groups and mesh.groups is {}; set mesh.groups={}, or make a "
         "new plan",
         plan.groups, mesh.groups, plan.groups);
  }
  if (mesh.layout != spec::MeshLayout::kAuto && mesh.layout != plan.layout) {
    fail(ErrorCode::kConfig,
         "the plan's layout is {} and mesh.layout is {}; set mesh.layout=auto, or make a new plan",
         to_string(plan.layout), to_string(mesh.layout));
  }
}

/// A data_parallel table is on every rank of every group, whatever its configuration says.
void check_table_groups(const spec::Table& table,
                        const spec::TablePlan& plan,
                        const spec::Plan& whole) {
  const std::int64_t groups = whole.groups_of(plan);
  const std::int64_t wanted = table.groups > 0 ? table.groups : whole.groups;
  if (plan.sharding == Sharding::kDataParallel) {
    if (groups != whole.groups) {
      refuse(table, "data_parallel is on all ranks of all groups, and the plan has {} groups of it",
             groups);
    }
    return;
  }
  if (groups != wanted) {
    refuse(table, "it is for {} replica groups and the configuration has {} (tables.{}.groups)",
           groups, wanted, table.name);
  }
  if (whole.groups % groups != 0) {
    refuse(table, "its {} replica groups do not divide the plan's {}", groups, whole.groups);
  }
}

/// Pins of tables to hosts and the job's own hosts are numbered so.
void check_host_numbers(const std::vector<std::int64_t>& hosts) {
  std::int64_t next = 0;
  for (std::size_t r = 0; r < hosts.size(); ++r) {
    if (hosts[r] < 0 || hosts[r] > next) {
      fail(
          ErrorCode::kConfig,
          "the plan has rank {} on host {}, where the next host is {}; number hosts by their first "
          "ranks, from 0",
          r, hosts[r], next);
    }
    next = std::max(next, hosts[r] + 1);
  }
}

/// Requires that the plan has caches.
void check_table_caches(const spec::Table& table, const spec::TablePlan& plan) {
  if (!layout::shares_cache(table)) {
    if (!plan.caches.empty()) {
      refuse(table, "it has caches, and the configuration {}",
             table.memory.tier == spec::MemoryTier::kSsd
                 ? fmt::format("a cache_bytes of the table's own, {}", table.memory.cache_bytes)
                 : fmt::format("memory.tier {}", to_string(table.memory.tier)));
    }
    return;
  }
  if (plan.caches.size() != plan.shards.size()) {
    refuse(table,
           "it has {} caches for {} shards; a plan says the cache of every shard that shares "
           "tiers.cache_bytes, or of none",
           plan.caches.size(), plan.shards.size());
  }
  for (const std::int64_t bytes : plan.caches) {
    if (bytes < 1) {
      refuse(table, "a cache of {} bytes holds no row", bytes);
    }
  }
}

}  // namespace

void check_caches(const spec::Plan& plan, const spec::Config& config) {
  if (!spec::has_caches(plan)) {
    return;
  }
  if (config.tiers.division == spec::CacheDivision::kBytes) {
    fail(ErrorCode::kConfig,
         "tiers.division is bytes in the configuration and the plan has caches of its own; set "
         "auto, or make a new plan");
  }
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    check_table_caches(config.tables[t], plan.tables[t]);
  }
  const std::vector<std::int64_t> bytes = shared_caches(plan);
  const auto most = std::max_element(bytes.begin(), bytes.end());
  if (*most > spec::shared_cache_bytes(config.tiers, plan)) {
    const bool is_said = config.tiers.cache_bytes > 0 || plan.cache_bytes == 0;
    fail(ErrorCode::kConfig,
         "the plan's caches of rank {} take {} bytes, and {} is {}; set it to that, or make a new "
         "plan",
         most - bytes.begin(), *most, is_said ? "tiers.cache_bytes" : "cache_bytes of the plan",
         spec::shared_cache_bytes(config.tiers, plan));
  }
}

void check_plan(const spec::Plan& plan, const spec::Config& config) {
  if (plan.ranks < 1 || plan.groups < 1 || plan.parts < plan.world()) {
    fail(ErrorCode::kConfig, "the plan has {} parts for {} ranks; each rank needs one at least",
         plan.parts, plan.world());
  }
  check_mesh(plan, config.mesh);
  check_sync(plan, config);
  if (plan.tables.size() != config.tables.size()) {
    fail(ErrorCode::kConfig, "the plan has {} tables, the configuration {}; make a new plan",
         plan.tables.size(), config.tables.size());
  }
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    if (plan.tables[t].table != config.tables[t].name) {
      fail(ErrorCode::kConfig,
           "table {} of the plan is '{}', that of the configuration '{}'; make a new plan", t,
           plan.tables[t].table, config.tables[t].name);
    }
    check_table_groups(config.tables[t], plan.tables[t], plan);
  }
  if (!plan.hosts.empty() && static_cast<std::int64_t>(plan.hosts.size()) != plan.most_ranks()) {
    fail(ErrorCode::kConfig, "the plan has hosts of {} ranks, and {} ranks; make a new plan",
         plan.hosts.size(), plan.most_ranks());
  }
  check_host_numbers(plan.hosts);
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    check_table(config.tables[t], plan.tables[t], plan, spec::column_cut(config.codecs));
  }
  check_caches(plan, config);
}

}  // namespace weft::planner
