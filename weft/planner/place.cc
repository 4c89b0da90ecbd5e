#include "weft/planner/place.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "weft/base/error.h"
#include "weft/base/host_layout.h"
#include "weft/base/parts.h"
#include "weft/base/text.h"
#include "weft/planner/hot_rows.h"
#include "weft/planner/resolve_parts.h"

namespace weft::planner {
namespace {

using spec::Shard;
using spec::Sharding;

// A flat exchange has a message for each other rank, and one thread that sends them.
constexpr std::int64_t kMostFlatRanks = 64;

/// How many blocks of `cut` columns a table has.
std::int64_t blocks_of(const spec::Table& table, std::int64_t cut) {
  return (table.embedding_dim + cut - 1) / cut;
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

/// A table's share of all weights' bytes and its share of the bytes of rows looked up per sample,
/// added up, in a unit that makes whole numbers of them: where tables are alike, so are loads.
std::vector<double> table_loads(const spec::Config& config) {
  std::vector<double> lookups(config.tables.size(), 0.0);
  for (const spec::SparseFeature& feature : config.sparse_features) {
    const auto table = static_cast<std::size_t>(spec::table_index(config, feature));
    lookups[table] += std::max(1.0, mean_length(config, feature));
  }
  std::vector<double> held;
  std::vector<double> read;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const spec::Table& table = config.tables[t];
    held.push_back(static_cast<double>(table.num_embeddings) * row_bytes(table));
    read.push_back(std::max(1.0, lookups[t]) * row_bytes(table));
  }
  const double all_held = std::accumulate(held.begin(), held.end(), 0.0);
  const double all_read = std::accumulate(read.begin(), read.end(), 0.0);
  std::vector<double> loads;
  for (std::size_t t = 0; t < held.size(); ++t) {
    loads.push_back(held[t] * all_read + read[t] * all_held);
  }
  return loads;
}

std::vector<std::int64_t> all_below(std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), std::int64_t{0});
  return numbers;
}

std::vector<Shard> every_rank(const spec::Table& table, std::int64_t ranks) {
  std::vector<Shard> shards;
  for (std::int64_t r = 0; r < ranks; ++r) {
    shards.push_back(
        {.rank = r, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}});
  }
  return shards;
}

/// Cut `index` of `count`; may be empty.
RowSet rows_of(const spec::Table& table, std::int64_t count, std::int64_t index) {
  const std::int64_t rows = table.num_embeddings;
  if (table.row_split == spec::RowSplit::kRange) {
    return piece(rows, count, index);
  }
  const std::int64_t cuts = std::min(count, rows);
  return index < cuts ? RowSet(index, rows, cuts) : RowSet();
}

/// Rows over `ranks`, in their order.
std::vector<Shard> row_shards(const spec::Table& table, const std::vector<std::int64_t>& ranks) {
  std::vector<Shard> shards;
  const auto count = static_cast<std::int64_t>(ranks.size());
  for (std::int64_t i = 0; i < count; ++i) {
    const RowSet rows = rows_of(table, count, i);
    if (rows.size() > 0) {
      shards.push_back({.rank = ranks[static_cast<std::size_t>(i)],
                        .rows = rows,
                        .cols = {0, table.embedding_dim}});
    }
  }
  return shards;
}

/// Columns of number `index` of `count` shards, cut at multiples of `cut`.
Range columns_of(const spec::Table& table,
                 std::int64_t cut,
                 std::int64_t count,
                 std::int64_t index) {
  const Range blocks = piece(blocks_of(table, cut), count, index);
  return {blocks.begin * cut, std::min(blocks.end * cut, table.embedding_dim)};
}

/// Without ranks.
std::vector<Shard> column_shards(const spec::Table& table, std::int64_t cut, std::int64_t ranks) {
  // Shards of one table exchange row statistics, so each is on a rank of its own.
  const std::int64_t wanted = table.column_shards > 0 ? table.column_shards : ranks;
  const std::int64_t count = std::min({wanted, ranks, blocks_of(table, cut)});
  std::vector<Shard> shards;
  for (std::int64_t i = 0; i < count; ++i) {
    shards.push_back(
        {.rank = 0, .rows = {0, table.num_embeddings}, .cols = columns_of(table, cut, count, i)});
  }
  return shards;
}

/// The ranks of each host; hosts by the order of their first ranks.
std::vector<std::vector<std::int64_t>> ranks_of_hosts(const RankLayout& layout) {
  if (layout.hosts.empty()) {
    return {all_below(layout.ranks)};
  }
  std::vector<std::vector<std::int64_t>> hosts;
  std::map<std::int64_t, std::size_t> known;
  for (std::size_t r = 0; r < layout.hosts.size(); ++r) {
    const auto [place, is_new] = known.try_emplace(layout.hosts[r], hosts.size());
    if (is_new) {
      hosts.emplace_back();
    }
    hosts[place->second].push_back(static_cast<std::int64_t>(r));
  }
  return hosts;
}

/// Ranks, their hosts, and their loads while tables are dealt out.
class Ranks {
 public:
  explicit Ranks(const RankLayout& layout)
      : all_(all_below(layout.ranks)),
        hosts_(ranks_of_hosts(layout)),
        loads_(static_cast<std::size_t>(layout.ranks), 0.0) {}

  Ranks(const RankLayout& layout, std::span<const double> loads) : Ranks(layout) {
    set_loads(loads);
  }

  void set_loads(std::span<const double> loads) { loads_.assign(loads.begin(), loads.end()); }

  [[nodiscard]] const std::vector<std::int64_t>& all() const { return all_; }

  [[nodiscard]] std::int64_t hosts() const { return static_cast<std::int64_t>(hosts_.size()); }

  [[nodiscard]] const std::vector<std::int64_t>& of_host(std::int64_t host) const {
    return hosts_[static_cast<std::size_t>(host)];
  }

  [[nodiscard]] std::int64_t size(std::int64_t host) const {
    return static_cast<std::int64_t>(of_host(host).size());
  }

  /// `ranks`, the least loaded first.
  [[nodiscard]] std::vector<std::int64_t> by_load(std::vector<std::int64_t> ranks) const {
    sort_by(ranks, [this](std::int64_t rank) { return loads_[static_cast<std::size_t>(rank)]; });
    return ranks;
  }

  [[nodiscard]] std::vector<std::int64_t> hosts_by_load() const {
    std::vector<std::int64_t> hosts = all_below(this->hosts());
    sort_by(hosts, [this](std::int64_t host) {
      double sum = 0.0;
      for (const std::int64_t rank : of_host(host)) {
        sum += loads_[static_cast<std::size_t>(rank)];
      }
      return sum / static_cast<double>(size(host));
    });
    return hosts;
  }

 private:
  /// Ties keep their order, that of numbers.
  template <typename Key>
  static void sort_by(std::vector<std::int64_t>& numbers, const Key& key) {
    std::stable_sort(numbers.begin(), numbers.end(),
                     [&](std::int64_t a, std::int64_t b) { return key(a) < key(b); });
  }

  std::vector<std::int64_t> all_;
  std::vector<std::vector<std::int64_t>> hosts_;
  std::vector<double> loads_;  // [ranks]
};

/// The ranks of a table's first group, for every number of groups, while tables are dealt out. All
/// put their loads on the same positions of the mesh.
class MeshRanks {
 public:
  MeshRanks(const spec::Mesh& mesh, const RankLayout& world)
      : mesh_(mesh), world_(world), loads_(static_cast<std::size_t>(world.ranks), 0.0) {}

  /// Of tables with so many groups, with the loads so far: of a place the most that any group's
  /// rank has there. Valid until the next call.
  [[nodiscard]] const Ranks& of(std::int64_t groups) {
    const std::int64_t count = world_.ranks / groups;
    std::vector<double> loads(static_cast<std::size_t>(count), 0.0);
    for (std::size_t p = 0; p < loads_.size(); ++p) {
      double& load = loads[p % loads.size()];
      load = std::max(load, loads_[p]);
    }
    auto found = ranks_.find(groups);
    if (found == ranks_.end()) {
      found = ranks_.emplace(groups, Ranks(first_positions(mesh_, world_, count))).first;
    }
    found->second.set_loads(loads);
    return found->second;
  }

  /// Shares the load of a table among its shards, in each of its groups.
  void add(std::int64_t groups, const spec::Shards& shards, double load) {
    const std::int64_t count = world_.ranks / groups;
    for (const Shard& shard : shards) {
      for (std::int64_t p = shard.rank; p < world_.ranks; p += count) {
        loads_[static_cast<std::size_t>(p)] += load / static_cast<double>(shards.size());
      }
    }
  }

 private:
  const spec::Mesh& mesh_;
  const RankLayout& world_;
  std::map<std::int64_t, Ranks> ranks_;
  std::vector<double> loads_;  // [positions]
};

/// How a table is cut into a grid: which host has each cut of columns, and rows for how many ranks.
struct Grid {
  std::vector<std::int64_t> hosts;  ///< [cuts of columns]
  std::int64_t rows = 0;            ///< cuts of rows
};

Grid cut_grid(const spec::Table& table, std::int64_t cut, const Ranks& ranks) {
  const std::int64_t wanted = table.column_shards > 0 ? table.column_shards : ranks.hosts();
  const std::vector<std::int64_t> order = ranks.hosts_by_load();
  std::int64_t columns = std::min(wanted, blocks_of(table, cut));
  while (true) {
    Grid grid;
    std::vector<std::int64_t> cuts(order.size(), 0);  // of each host
    for (std::int64_t c = 0; c < columns; ++c) {
      grid.hosts.push_back(order[static_cast<std::size_t>(c) % order.size()]);
      ++cuts[static_cast<std::size_t>(grid.hosts.back())];
    }
    grid.rows = table.num_embeddings;
    for (const std::int64_t host : grid.hosts) {
      grid.rows = std::min(grid.rows, ranks.size(host) / cuts[static_cast<std::size_t>(host)]);
    }
    if (grid.rows > 0) {
      return grid;
    }
    --columns;
  }
}

/// Every block on a rank of its own: the least loaded of each host take its cuts of columns.
std::vector<Shard> grid_shards(const spec::Table& table, std::int64_t cut, const Ranks& ranks) {
  const Grid grid = cut_grid(table, cut, ranks);
  const auto columns = static_cast<std::int64_t>(grid.hosts.size());
  std::vector<Shard> shards(static_cast<std::size_t>(grid.rows * columns));
  std::map<std::int64_t, std::vector<std::int64_t>> free;  // of a host, least loaded first
  for (const std::int64_t host : grid.hosts) {
    free.try_emplace(host, ranks.by_load(ranks.of_host(host)));
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    auto& own = free.at(grid.hosts[static_cast<std::size_t>(c)]);
    for (std::int64_t r = 0; r < grid.rows; ++r) {
      shards[static_cast<std::size_t>(r * columns + c)] = {
          .rank = own.front(),
          .rows = rows_of(table, grid.rows, r),
          .cols = columns_of(table, cut, columns, c)};
      own.erase(own.begin());
    }
  }
  return shards;
}

/// Without a search bags are added at the owners, if nothing else is asked for.
spec::PooledAt pooled_at(const spec::Table& table) {
  const bool sample = table.pooled_at == spec::PooledAt::kSample &&
                      (table.sharding != Sharding::kAuto || table.hot_rows > 0);
  return sample ? spec::PooledAt::kSample : spec::PooledAt::kOwner;
}

void check_pins(const spec::Table& table, const Ranks& ranks) {
  const auto count = static_cast<std::int64_t>(ranks.all().size());
  if (table.rank >= count) {
    fail(ErrorCode::kConfig,
         "tables.{}.rank: there is no rank {} among {}; use 0 to {}, or -1 to have it placed",
         table.name, table.rank, counted(count, "rank"), count - 1);
  }
  if (table.host >= ranks.hosts()) {
    fail(ErrorCode::kConfig,
         "tables.{}.host: there is no host {} among {}; use 0 to {}, or -1 to have it placed",
         table.name, table.host, counted(ranks.hosts(), "host"), ranks.hosts() - 1);
  }
}

Shard whole_on(const spec::Table& table, std::int64_t rank) {
  return {.rank = rank, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}};
}

/// Without a search a table is whole, unless that is not allowed.
Sharding resolved(const spec::Table& table) {
  if (table.sharding != Sharding::kAuto) {
    return table.sharding;
  }
  return may_be_whole(table) ? Sharding::kTableWise : Sharding::kDataParallel;
}

/// Shards of a table whose ranks the configuration fixes; empty where the planner places it.
std::vector<Shard> fixed_shards(const spec::Table& table, const Ranks& ranks) {
  switch (resolved(table)) {
    case Sharding::kDataParallel:
      return every_rank(table, static_cast<std::int64_t>(ranks.all().size()));
    case Sharding::kRowWise:
      return row_shards(table, ranks.all());
    case Sharding::kTableRowWise:
      return table.host < 0 ? std::vector<Shard>{} : row_shards(table, ranks.of_host(table.host));
    case Sharding::kAuto:
    case Sharding::kTableWise:
      return table.rank < 0 ? std::vector<Shard>{}
                            : std::vector<Shard>{whole_on(table, table.rank)};
    case Sharding::kColumnWise:
    case Sharding::kTableColumnWise:
    case Sharding::kGridShard:
      break;
  }
  return {};
}

/// Those of a table that the planner places, given the loads so far.
std::vector<Shard> free_shards(const spec::Table& table, std::int64_t cut, const Ranks& ranks) {
  const bool anywhere = table.sharding == Sharding::kColumnWise ||
                        (table.sharding != Sharding::kTableRowWise &&
                         table.sharding != Sharding::kTableColumnWise && table.host < 0);
  const std::int64_t host = table.host >= 0 ? table.host : ranks.hosts_by_load().front();
  const std::vector<std::int64_t>& among = anywhere ? ranks.all() : ranks.of_host(host);
  switch (table.sharding) {
    case Sharding::kGridShard:
      return grid_shards(table, cut, ranks);
    case Sharding::kTableRowWise:
      return row_shards(table, among);
    case Sharding::kColumnWise:
    case Sharding::kTableColumnWise: {
      std::vector<Shard> shards =
          column_shards(table, cut, static_cast<std::int64_t>(among.size()));
      const std::vector<std::int64_t> order = ranks.by_load(among);
      for (std::size_t i = 0; i < shards.size(); ++i) {
        shards[i].rank = order[i];
      }
      return shards;
    }
    default:
      return {whole_on(table, ranks.by_load(among).front())};
  }
}

}  // namespace

std::vector<std::int64_t> host_numbers(const RankLayout& layout) {
  const Ranks ranks(layout);
  if (ranks.hosts() == 1) {
    return {};
  }
  std::vector<std::int64_t> numbers(ranks.all().size());
  for (std::int64_t host = 0; host < ranks.hosts(); ++host) {
    for (const std::int64_t rank : ranks.of_host(host)) {
      numbers[static_cast<std::size_t>(rank)] = host;
    }
  }
  return numbers;
}

/// Without knowledge of the links: flat, unless asked for, or with so many ranks that messages
/// decide.
spec::CollectiveForms asked_forms(const spec::Config& config,
                                  const std::vector<std::int64_t>& hosts) {
  const bool is_wanted =
      config.collectives == spec::Collectives::kHierarchical ||
      (config.collectives == spec::Collectives::kAuto && std::ssize(hosts) > kMostFlatRanks);
  const HostLayout layout(std::vector<int>(hosts.begin(), hosts.end()));
  if (!is_wanted || layout.is_flat()) {
    return {};
  }
  const auto form = spec::CollectiveForm::kHierarchical;
  return {.ids = form, .vectors = form, .dense = hierarchical_sum(layout)};
}

std::vector<Shard> place_table(const spec::Table& table,
                               std::int64_t cut,
                               const RankLayout& layout,
                               std::span<const double> loads) {
  return free_shards(table, cut, Ranks(layout, loads));
}

RankLayout first_positions(const spec::Mesh& mesh, const RankLayout& world, std::int64_t count) {
  spec::check_groups(mesh.groups_or_one(), world.ranks);
  const std::int64_t group_ranks = world.ranks / mesh.groups_or_one();
  RankLayout first{.ranks = count};
  for (std::int64_t p = 0; p < count && !world.hosts.empty(); ++p) {
    const std::int64_t rank = spec::mesh_rank(mesh.layout, mesh.groups_or_one(), group_ranks, p);
    first.hosts.push_back(world.hosts[static_cast<std::size_t>(rank)]);
  }
  return first;
}

RankLayout first_group(const spec::Mesh& mesh, const RankLayout& world) {
  spec::check_groups(mesh.groups_or_one(), world.ranks);
  return first_positions(mesh, world, world.ranks / mesh.groups_or_one());
}

spec::Plan make_plan(const spec::Config& config,
                     const RankLayout& world,
                     const std::vector<HotRows>& hot_rows) {
  if (world.ranks < 1) {
    fail(ErrorCode::kConfig, "a plan needs at least one rank, not {}", world.ranks);
  }
  WEFT_CHECK(world.hosts.empty() || static_cast<std::int64_t>(world.hosts.size()) == world.ranks,
             "hosts of {} ranks for a plan of {}", world.hosts.size(), world.ranks);
  const RankLayout layout = first_group(config.mesh, world);
  spec::Plan plan{.version = 1,
                  .ranks = layout.ranks,
                  .groups = config.mesh.groups_or_one(),
                  .parts = resolve_parts(config, world.ranks),
                  .hosts = {},
                  .tables = {}};
  if (config.mesh.layout != spec::MeshLayout::kAuto) {
    plan.layout = config.mesh.layout;
  }
  const spec::Mesh mesh{.groups = plan.groups, .layout = plan.layout};
  MeshRanks ranks(mesh, world);
  const std::vector<double> loads = table_loads(config);
  const std::int64_t cut = spec::column_cut(config.codecs);
  std::vector<std::size_t> open;
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    const spec::Table& table = config.tables[t];
    const Sharding sharding = resolved(table);
    const bool has_own = sharding != Sharding::kDataParallel && table.groups > 0;
    const std::int64_t groups = has_own ? table.groups : plan.groups;
    const Ranks& among = ranks.of(groups);
    check_pins(table, among);
    plan.tables.push_back(
        {.table = table.name,
         .sharding = sharding,
         .pooled_at = pooled_at(table),
         .groups = groups == plan.groups ? 0 : groups,
         .hot = hottest_rows(config, static_cast<std::int64_t>(t), hot_rows, table.hot_rows),
         .shards = fixed_shards(table, among)});
    ranks.add(groups, plan.tables.back().shards, loads[t]);
    if (plan.tables.back().shards.empty()) {
      open.push_back(t);
    }
  }
  std::stable_sort(open.begin(), open.end(),
                   [&](std::size_t a, std::size_t b) { return loads[a] > loads[b]; });
  for (const std::size_t t : open) {
    const std::int64_t groups = plan.groups_of(plan.tables[t]);
    plan.tables[t].shards = free_shards(config.tables[t], cut, ranks.of(groups));
    ranks.add(groups, plan.tables[t].shards, loads[t]);
  }
  plan.hosts = host_numbers(first_positions(mesh, world, plan.most_ranks()));
  plan.collectives = asked_forms(config, plan.hosts);
  plan.collectives.dense = asked_forms(config, host_numbers(world)).dense;  // over all groups
  return plan;
}

}  // namespace weft::planner
