#include "weft/train/memory_check.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/checkpoint/agree.h"
#include "weft/kernels/target.h"
#include "weft/layout/cache_shares.h"
#include "weft/layout/tables.h"
#include "weft/planner/dense_memory.h"
#include "weft/planner/step_memory.h"
#include "weft/planner/workload.h"
#include "weft/train/memory_limits.h"

namespace weft::train {
namespace {

constexpr std::size_t kNamedTables = 5;

/// A limit of one rank, as it travels.
struct Entry {
  std::int64_t rank = 0;
  std::uint64_t id = 0;
  std::int64_t left = 0;
  std::array<char, 104> name{};  // cut where it is longer
};

/// A limit, and all that it holds for.
struct SharedLimit {
  std::string name;
  std::int64_t left = 0;
  std::vector<std::int64_t> ranks;  // ascending
};

std::string text(double bytes) {
  return format_bytes(static_cast<std::uint64_t>(std::max(0.0, bytes)));
}

std::vector<Entry> own_entries(const comm::Communicator& world, const std::string& root) {
  std::vector<Entry> entries;
  for (const MemoryLimit& limit : memory_limits(root)) {
    Entry& entry = entries.emplace_back();
    entry.rank = world.rank();
    entry.id = limit.id;
    entry.left = limit.left;
    limit.name.copy(entry.name.data(), entry.name.size() - 1);
  }
  return entries;
}

/// In the order of the ranks that named them first.
std::vector<SharedLimit> shared_limits(const comm::Communicator& world,
                                       std::span<const Entry> entries) {
  std::vector<SharedLimit> limits;
  std::map<std::pair<int, std::uint64_t>, std::size_t> places;
  for (const Entry& entry : entries) {
    const int host = world.host(static_cast<int>(entry.rank));
    const auto [place, is_new] = places.try_emplace({host, entry.id}, limits.size());
    if (is_new) {
      limits.push_back({.name = entry.name.data(), .left = entry.left, .ranks = {}});
    }
    SharedLimit& limit = limits[place->second];
    limit.left = std::min(limit.left, entry.left);
    limit.ranks.push_back(entry.rank);
  }
  return limits;
}

bool has_one_set(const spec::Plan& plan) {
  return std::all_of(plan.tables.begin(), plan.tables.end(), [&](const spec::TablePlan& table) {
    return plan.groups_of(table) == plan.groups;
  });
}

/// What the planner predicts beside tables, of the busiest rank. Of tables in sets of several
/// numbers of groups only the dense side.
double predicted_rest(const comm::Communicator& world,
                      const spec::Config& config,
                      const spec::Plan& plan,
                      int threads) {
  const planner::Workload workload = planner::make_workload(config);
  double rest = planner::dense_memory(config, workload,
                                      {.parts = plan.parts,
                                       .ranks = plan.world(),
                                       .rank = 0,
                                       .threads = threads,
                                       .lent = world.lends(),
                                       .packing = kernels::current_packing()})
                    .bytes();
  if (has_one_set(plan)) {
    double most = 0.0;
    const auto transport =
        world.lends() ? planner::Transport::kLent : planner::Transport::kReceived;
    for (const auto& memory :
         planner::step_memory(config, workload, plan, {.transport = transport})) {
      most = std::max(most, memory.matrices + memory.buffers() + memory.places);
    }
    rest += most;
  }
  return rest;
}

/// Bytes that the positions first, first + stride, ... of the mesh hold each.
struct PlacedBytes {
  std::int64_t first = 0;
  std::int64_t stride = 1;
  std::int64_t bytes = 0;
};

std::vector<PlacedBytes> placed_bytes(const spec::Table& table,
                                      const spec::Plan& plan,
                                      const spec::TablePlan& placed) {
  if (placed.sharding == spec::Sharding::kDataParallel) {
    return {{.bytes = layout::resident_bytes(table, table.num_embeddings, table.embedding_dim)}};
  }
  std::vector<PlacedBytes> all;
  for (const spec::Shard& shard : placed.shards) {
    all.push_back({.first = shard.rank,
                   .stride = plan.ranks_of(placed),
                   .bytes = layout::resident_bytes(table, shard.rows.size(), shard.cols.size())});
  }
  for (const Range& rows : placed.hot) {
    all.push_back({.bytes = layout::shard_bytes(table, rows.size(), table.embedding_dim)});
  }
  return all;
}

/// Of tables and state, on every position of the mesh. O(tables · world + shards · groups).
std::vector<double> bytes_of_positions(const spec::Config& config, const spec::Plan& plan) {
  std::vector<double> bytes(static_cast<std::size_t>(plan.world()));
  std::vector<bool> has_cache(bytes.size());  // that its shards share
  const auto add = [&](std::int64_t first, std::int64_t stride, std::int64_t more) {
    for (std::int64_t p = first; p < plan.world(); p += stride) {
      bytes[static_cast<std::size_t>(p)] += static_cast<double>(more);
    }
  };
  const layout::CacheShares caches(config, plan);
  const bool is_chosen = config.tiers.cache_bytes == 0;  // by the plan, for each rank
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    for (const PlacedBytes& placed : placed_bytes(config.tables[t], plan, plan.tables[t])) {
      add(placed.first, placed.stride, placed.bytes);
    }
    for (std::size_t i = 0; is_chosen && i < plan.tables[t].shards.size(); ++i) {
      if (layout::shares_cache(config.tables[t])) {
        add(plan.tables[t].shards[i].rank, plan.ranks_of(plan.tables[t]), caches.bytes(t, i));
      }
    }
    for (const spec::Shard& shard : plan.tables[t].shards) {
      if (layout::shares_cache(config.tables[t]) && !has_cache[at(shard.rank)]) {
        has_cache[at(shard.rank)] = true;
        bytes[at(shard.rank)] += static_cast<double>(config.tiers.cache_bytes);
      }
    }
  }
  return bytes;
}

std::string largest_tables(const SharedLimit& limit,
                           const spec::Config& config,
                           const spec::Plan& plan) {
  std::vector<std::pair<std::int64_t, std::string>> tables;
  for (const spec::Table& table : config.tables) {
    tables.emplace_back(0, table.name);
  }
  for (const std::int64_t rank : limit.ranks) {
    const std::vector<std::int64_t> own = table_bytes(config, plan, rank);
    for (std::size_t t = 0; t < own.size(); ++t) {
      tables[t].first += own[t];
    }
  }
  std::stable_sort(tables.begin(), tables.end(),
                   [](const auto& a, const auto& b) { return a.first > b.first; });
  tables.resize(std::min(tables.size(), kNamedTables));
  std::vector<std::string> names;
  for (const auto& [bytes, name] : tables) {
    names.push_back(fmt::format("{} {}", name, text(static_cast<double>(bytes))));
  }
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string ranks_of(const comm::Communicator& world, const SharedLimit& limit) {
  const int first = world.world_rank(static_cast<int>(limit.ranks.front()));
  return limit.ranks.size() == 1
             ? fmt::format("rank {}", first)
             : fmt::format("{} ranks of the host of rank {}", limit.ranks.size(), first);
}

/// Says that tables and state do not fit: an error, or a warning of one rank.
void report_shortage(const comm::Communicator& world,
                     int origin,
                     const std::string& what,
                     Shortage on_shortage) {
  if (on_shortage == Shortage::kRefuse) {
    throw Error(ErrorCode::kResource,
                what +
                    "; take more hosts, fewer rows or columns, bf16 rows or an optimizer with "
                    "less state, raise the limit, or insist with --ignore-memory-limits",
                world.world_rank(origin));
  }
  if (world.rank() == 0) {
    log_warning("{}; the system may end the job (--ignore-memory-limits)", what);
  }
}

/// By rank 0, for all.
void compare_with_limits(const comm::Communicator& world,
                         std::span<const Entry> all,
                         const spec::Config& config,
                         const spec::Plan& plan,
                         int threads,
                         Shortage on_shortage) {
  const double rest = predicted_rest(world, config, plan, threads);
  const std::vector<double> bytes = bytes_of_positions(config, plan);
  for (const SharedLimit& limit : shared_limits(world, all)) {
    double tables = 0.0;
    for (const std::int64_t rank : limit.ranks) {
      tables += bytes[static_cast<std::size_t>(rank)];
    }
    const double buffers = rest * static_cast<double>(limit.ranks.size());
    const auto left = static_cast<double>(limit.left);
    const std::string takes = fmt::format("tables and optimizer state of {} take {}",
                                          ranks_of(world, limit), text(tables));
    if (tables > left) {
      report_shortage(world, static_cast<int>(limit.ranks.front()),
                      fmt::format("{}, and {} has {} left; the largest tables there: {}", takes,
                                  limit.name, text(left), largest_tables(limit, config, plan)),
                      on_shortage);
    } else if (tables + buffers > left) {
      log_warning(
          "{}, buffers of exchanges and the dense model as predicted {}, and {} has {} left; a "
          "smaller batch_size needs less",
          takes, text(buffers), limit.name, text(left));
    }
  }
}

}  // namespace

std::vector<std::int64_t> table_bytes(const spec::Config& config,
                                      const spec::Plan& plan,
                                      std::int64_t position) {
  std::vector<std::int64_t> bytes(config.tables.size());
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    for (const PlacedBytes& placed : placed_bytes(config.tables[t], plan, plan.tables[t])) {
      bytes[t] += position % placed.stride == placed.first ? placed.bytes : 0;
    }
  }
  return bytes;
}

void check_memory(comm::Communicator& world,
                  Context& ctx,
                  const spec::Config& config,
                  const spec::Plan& plan,
                  const MemoryCheckOptions& options) {
  const std::vector<Entry> own = own_entries(world, options.root);
  const checkpoint::Gathered gathered =
      checkpoint::gather_to_first(world, ctx, std::as_bytes(std::span(own)));
  std::int64_t threads = options.threads;
  world.all_reduce(ctx, &threads, 1, comm::ReduceOp::kMax);
  checkpoint::agree(world, ctx, [&](WorkProgress& progress) {
    if (world.rank() == 0) {
      progress.begin({.activity = "predicting", .place = "memory"});
      std::vector<Entry> all(gathered.bytes.size() / sizeof(Entry));
      std::copy(gathered.bytes.begin(), gathered.bytes.end(),
                std::as_writable_bytes(std::span(all)).begin());
      compare_with_limits(world, all, config, plan, static_cast<int>(threads), options.on_shortage);
    }
  });
}

}  // namespace weft::train
