#include "weft/planner/place.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/parts.h"

namespace weft::planner {
namespace {

using spec::Shard;
using spec::Sharding;

constexpr std::int64_t kDefaultParts = 8;

std::int64_t blocks_of(const spec::Table& table) {
  return (table.embedding_dim + spec::kColumnBlock - 1) / spec::kColumnBlock;
}

/// Of a row's weights in memory; of split_bf16 both halves.
double row_bytes(const spec::Table& table) {
  const bool halves = table.dtype == spec::RowDType::kFp16 || table.dtype == spec::RowDType::kBf16;
  return static_cast<double>(table.embedding_dim) * (halves ? 2 : 4);
}

/// Mean ids per sample of a feature, as far as the configuration tells.
double mean_length(const spec::Config& config, const spec::SparseFeature& feature) {
  const std::string& column = feature.column.empty() ? feature.name : feature.column;
  double length = feature.pooling == spec::Pooling::kNone ? 8.0 : 1.0;
  if (config.data.format == spec::DataFormat::kSynthetic) {
    for (const spec::SyntheticColumn& known : config.data.synthetic.columns) {
      if (known.name == column) {
        length = 0.5 * static_cast<double>(known.min_length + known.max_length);
      }
    }
  }
  return feature.max_length > 0 ? std::min(length, static_cast<double>(feature.max_length))
                                : length;
}

/// Bytes of a table × ids looked up in it per sample.
std::vector<double> table_loads(const spec::Config& config) {
  std::vector<double> lookups(config.tables.size(), 0.0);
  for (const spec::SparseFeature& feature : config.sparse_features) {
    const auto table = static_cast<std::size_t>(spec::table_index(config, feature));
    lookups[table] += std::max(1.0, mean_length(config, feature));
  }
  std::vector<double> loads;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const spec::Table& table = config.tables[t];
    loads.push_back(static_cast<double>(table.num_embeddings) * row_bytes(table) *
                    std::max(1.0, lookups[t]));
  }
  return loads;
}

std::vector<Shard> every_rank(const spec::Table& table, std::int64_t ranks) {
  std::vector<Shard> shards;
  for (std::int64_t r = 0; r < ranks; ++r) {
    shards.push_back(
        {.rank = r, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}});
  }
  return shards;
}

std::vector<Shard> row_shards(const spec::Table& table, std::int64_t ranks) {
  std::vector<Shard> shards;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const Range rows = piece(table.num_embeddings, ranks, r);
    if (!rows.empty()) {
      shards.push_back({.rank = r, .rows = rows, .cols = {0, table.embedding_dim}});
    }
  }
  return shards;
}

std::vector<Shard> column_shards(const spec::Table& table, std::int64_t ranks) {
  const std::int64_t blocks = blocks_of(table);
  // Shards of one table exchange row statistics, so each is on a rank of its own.
  const std::int64_t wanted = table.column_shards > 0 ? table.column_shards : ranks;
  const std::int64_t count = std::min({wanted, ranks, blocks});
  std::vector<Shard> shards;
  for (std::int64_t i = 0; i < count; ++i) {
    const Range cut = piece(blocks, count, i);
    shards.push_back({.rank = 0,
                      .rows = {0, table.num_embeddings},
                      .cols = {cut.begin * spec::kColumnBlock,
                               std::min(cut.end * spec::kColumnBlock, table.embedding_dim)}});
  }
  return shards;
}

/// Loads of the ranks while tables are dealt out.
class Ranks {
 public:
  explicit Ranks(std::int64_t count) : loads_(static_cast<std::size_t>(count), 0.0) {}

  void add(std::int64_t rank, double load) { loads_[static_cast<std::size_t>(rank)] += load; }

  /// Gives the shards to the least loaded ranks, no rank twice while others are free.
  void place(std::vector<Shard>& shards, double load) {
    std::vector<std::int64_t> order(loads_.size());
    for (std::size_t i = 0; i < shards.size(); ++i) {
      const std::size_t turn = i % order.size();
      if (turn == 0) {
        std::iota(order.begin(), order.end(), std::int64_t{0});
        std::stable_sort(order.begin(), order.end(), [&](std::int64_t a, std::int64_t b) {
          return loads_[static_cast<std::size_t>(a)] < loads_[static_cast<std::size_t>(b)];
        });
      }
      shards[i].rank = order[turn];
      add(order[turn], load / static_cast<double>(shards.size()));
    }
  }

 private:
  std::vector<double> loads_;
};

std::int64_t resolve_parts(const spec::Config& config, std::int64_t ranks) {
  const std::int64_t parts = config.numerics.parts;
  if (parts == 0) {
    return std::max(kDefaultParts, ranks);
  }
  if (parts < ranks) {
    fail(ErrorCode::kConfig,
         "numerics.parts: {} parts cannot be spread over {} ranks, each needs one at least; set "
         "numerics.parts={} or more, or run on {} ranks",
         parts, ranks, ranks, parts);
  }
  return parts;
}

/// Shards of a table whose ranks the configuration fixes; empty where the planner places it.
std::vector<Shard> fixed_shards(const spec::Table& table, std::int64_t ranks) {
  switch (table.sharding) {
    case Sharding::kDataParallel:
      return every_rank(table, ranks);
    case Sharding::kRowWise:
      return row_shards(table, ranks);
    case Sharding::kAuto:
    case Sharding::kTableWise:
    case Sharding::kColumnWise:
      break;
  }
  if (table.sharding == Sharding::kColumnWise || table.rank < 0) {
    return {};
  }
  if (table.rank >= ranks) {
    fail(ErrorCode::kConfig,
         "tables.{}.rank: there is no rank {} among {} ranks; use 0 to {}, or -1 to have it placed",
         table.name, table.rank, ranks, ranks - 1);
  }
  return {
      {.rank = table.rank, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}}};
}

std::vector<Shard> free_shards(const spec::Table& table, std::int64_t ranks) {
  if (table.sharding == Sharding::kColumnWise) {
    return column_shards(table, ranks);
  }
  return {{.rank = 0, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}}};
}

}  // namespace

spec::Plan make_plan(const spec::Config& config, std::int64_t ranks) {
  if (ranks < 1) {
    fail(ErrorCode::kConfig, "a plan needs at least one rank, not {}", ranks);
  }
  spec::Plan plan{
      .version = 1, .ranks = ranks, .parts = resolve_parts(config, ranks), .tables = {}};
  const std::vector<double> loads = table_loads(config);
  Ranks load(ranks);
  std::vector<std::size_t> open;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const spec::Table& table = config.tables[t];
    const Sharding sharding =
        table.sharding == Sharding::kAuto ? Sharding::kTableWise : table.sharding;
    plan.tables.push_back(
        {.table = table.name, .sharding = sharding, .shards = fixed_shards(table, ranks)});
    const std::vector<Shard>& shards = plan.tables.back().shards;
    for (const Shard& shard : shards) {
      load.add(shard.rank, loads[t] / static_cast<double>(shards.size()));
    }
    if (shards.empty()) {
      open.push_back(t);
    }
  }
  std::stable_sort(open.begin(), open.end(),
                   [&](std::size_t a, std::size_t b) { return loads[a] > loads[b]; });
  for (const std::size_t t : open) {
    plan.tables[t].shards = free_shards(config.tables[t], ranks);
    load.place(plan.tables[t].shards, loads[t]);
  }
  return plan;
}

}  // namespace weft::planner
