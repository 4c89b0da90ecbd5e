// What to say where no plan fits.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/layout/tables.h"
#include "weft/planner/search.h"

namespace weft::planner {
namespace {

std::int64_t shortest_of(const SearchResult& result) {
  std::int64_t missing = 0;
  for (const Shortage& shortage : result.best().shortages) {
    missing = std::max(missing, shortage.missing);
  }
  return missing;
}

bool fits(const spec::Config& config, const topology::Cluster& cluster, const Workload& workload) {
  return search(config, cluster, workload).best().fits();
}

/// The fewest ranks, doubling, with which it fits; 0 where none up to 64 times as many does.
std::int64_t ranks_that_fit(spec::Config config,
                            const topology::Cluster& cluster,
                            const Workload& workload) {
  const std::int64_t now = topology::ranks(cluster);
  config.numerics.parts = 0;
  config.pipeline.cluster_parts = 0;  // fits no such number of parts, and takes none of the memory
  for (std::int64_t ranks = 2 * now; ranks <= 64 * now && ranks <= 65536; ranks *= 2) {
    if (fits(config, resized(cluster, ranks), workload)) {
      return ranks;
    }
  }
  return 0;
}

/// The largest batch, halving, whose rows fit into the smallest caches that memory has room for; 0
/// where none down to a 64th does.
std::int64_t batch_that_fits(spec::Config config,
                             const topology::Cluster& cluster,
                             const Workload& workload) {
  const std::int64_t least = std::max<std::int64_t>(config.batch_size / 64, 1);
  while (config.batch_size / 2 >= least) {
    config.batch_size /= 2;
    if (fits(config, cluster, workload)) {
      return config.batch_size;
    }
  }
  return 0;
}

/// The configuration with every table's place left to the search; nothing where it is so already.
std::optional<spec::Config> without_pins(const spec::Config& config) {
  spec::Config open = config;
  bool any = false;
  for (spec::Table& table : open.tables) {
    any = any || table.sharding != spec::Sharding::kAuto || table.rank >= 0 || table.host >= 0 ||
          !table.allow.empty();
    table.sharding = spec::Sharding::kAuto;
    table.allow.clear();
    table.rank = table.host = -1;
    table.column_shards = 0;
    table.row_split = spec::RowSplit::kRange;
  }
  return any ? std::optional(open) : std::nullopt;
}

/// Where the size of caches is left open, what the smallest of a rank take, as a clause.
std::string smallest_caches(const SearchResult& result, std::int64_t rank) {
  if (!result.cache_size || rank < 0 || result.cache_size->fewest[at(rank)] == 0) {
    return {};
  }
  return fmt::format(
      "; the smallest caches of its tables on disks, which hold the rows of one batch, take {}",
      format_bytes(static_cast<std::uint64_t>(result.cache_size->fewest[at(rank)])));
}

/// The table of which a rank holds most bytes.
std::string largest_on(const spec::Plan& plan, const spec::Config& config, std::int64_t rank) {
  std::string name;
  std::int64_t most = 0;
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    std::int64_t bytes = 0;
    for (const spec::Shard& shard : plan.tables[t].shards) {
      bytes += shard.rank == rank
                   ? layout::resident_bytes(config.tables[t], shard.rows.size(), shard.cols.size())
                   : 0;
    }
    for (const Range& rows : plan.tables[t].hot) {
      bytes += layout::shard_bytes(config.tables[t], rows.size(), config.tables[t].embedding_dim);
    }
    if (bytes > most) {
      most = bytes;
      name = plan.tables[t].table;
    }
  }
  return name;
}

}  // namespace

topology::Cluster resized(const topology::Cluster& cluster, std::int64_t ranks) {
  topology::Cluster changed = cluster;
  changed.hosts.clear();
  const std::int64_t per_host = cluster.hosts.front().ranks;
  if (ranks / per_host > 0) {
    changed.hosts.push_back({.count = ranks / per_host, .ranks = per_host});
  }
  if (ranks % per_host > 0) {
    changed.hosts.push_back({.count = 1, .ranks = ranks % per_host});
  }
  topology::check(changed);
  return changed;
}

void refuse(const SearchResult& result,
            const spec::Config& config,
            const topology::Cluster& cluster,
            const Workload& workload) {
  const Proposal& best = result.best();
  std::int64_t bytes = 0;
  for (const RankCost& rank : best.cost.ranks) {
    bytes += rank.table_bytes;
  }
  const auto text = [](std::int64_t count) {
    return format_bytes(static_cast<std::uint64_t>(count));
  };
  std::vector<std::string> changes;
  const std::int64_t ranks = ranks_that_fit(config, cluster, workload);
  if (ranks > 0) {
    changes.push_back(fmt::format("{} ranks of this kind", ranks));
  }
  changes.push_back(fmt::format("{} more memory per rank", text(shortest_of(result))));
  const std::optional<spec::Config> open = without_pins(config);
  if (open && fits(*open, cluster, workload)) {
    changes.emplace_back("every table's sharding: auto, without rank, host and allow");
  }
  if (config.mesh.groups > 1) {
    spec::Config fewer = config;
    bool has_own = false;  // as many as the mesh, or the search had refused them
    for (spec::Table& table : fewer.tables) {
      has_own = has_own || table.groups > 0;
      table.groups = 0;
    }
    --fewer.mesh.groups;
    while (topology::ranks(cluster) % fewer.mesh.groups != 0 ||
           (fewer.mesh.groups > 1 && !fits(fewer, cluster, workload))) {
      --fewer.mesh.groups;
    }
    if (fits(fewer, cluster, workload)) {
      changes.push_back(fmt::format("mesh.groups: {}{}", fewer.mesh.groups,
                                    has_own ? " and no groups of tables" : ""));
    }
  }
  spec::Config without_hot = config;
  for (spec::Table& table : without_hot.tables) {
    table.hot_rows = 0;
  }
  const bool has_hot = std::any_of(config.tables.begin(), config.tables.end(),
                                   [](const spec::Table& table) { return table.hot_rows > 0; });
  if (has_hot && fits(without_hot, cluster, workload)) {
    changes.emplace_back("no hot_rows");
  }
  const std::int64_t batch = result.cache_size ? batch_that_fits(config, cluster, workload) : 0;
  if (batch > 0) {
    changes.push_back(fmt::format("batch_size: {}", batch));
  }
  spec::Config halved = config;
  for (spec::Table& table : halved.tables) {
    table.dtype = spec::RowDType::kBf16;
  }
  if (fits(halved, cluster, workload)) {
    changes.emplace_back("rows of bf16 (dtype: bf16)");
  }
  const auto bytes_of = [](const spec::Table& table) {
    return layout::shard_bytes(table, table.num_embeddings, table.embedding_dim);
  };
  const spec::Table& largest = *std::max_element(
      config.tables.begin(), config.tables.end(),
      [&](const spec::Table& a, const spec::Table& b) { return bytes_of(a) < bytes_of(b); });
  const Shortage& first = best.shortages.front();
  fail(ErrorCode::kConfig,
       "no plan fits: tables and their state take {}, most of it table {} with {}; each of the {} "
       "ranks has {} for tables and the buffers of their exchanges. In the best plan {} lacks {}"
       "{}. It fits with {}",
       text(bytes), largest.name, text(bytes_of(largest)), topology::ranks(cluster),
       text(result.capacity),
       first.table.empty() ? fmt::format("rank {}, mostly of table {},", first.rank,
                                         largest_on(best.plan, config, first.rank))
                           : fmt::format("table {} on rank {}", first.table, first.rank),
       text(first.missing), smallest_caches(result, first.rank), fmt::join(changes, ", or with "));
}

}  // namespace weft::planner
