#include "weft/planner/proposer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "weft/base/at.h"
#include "weft/planner/place.h"

namespace weft::planner {
namespace {

using spec::PooledAt;
using spec::Shard;
using spec::Sharding;

/// How many hot rows the search tries to give a table.
constexpr std::array<std::int64_t, 6> kHotCounts = {64, 256, 1024, 4096, 16384, 65536};

bool allows(const spec::Table& table, std::string_view scheme) {
  if (scheme == "data_parallel" && table.memory.tier != spec::MemoryTier::kDense &&
      table.allow.size() != 1) {
    return false;  // every rank would have, and read, what one of them can have for all
  }
  return table.allow.empty() ||
         std::find(table.allow.begin(), table.allow.end(), scheme) != table.allow.end();
}

bool is_pinned(const spec::Table& table) {
  return table.rank >= 0 || table.host >= 0;
}

/// What a table whose scheme is left open may be.
TableSketch auto_sketch(const spec::Table& table) {
  if (is_pinned(table)) {
    return TableSketch::kFixed;
  }
  const bool only_replica = table.allow.size() == 1 && allows(table, "data_parallel");
  return only_replica ? TableSketch::kReplicate : TableSketch::kCut;
}

bool is_on_hosts(TableSketch choice) {
  return choice == TableSketch::kHostRows || choice == TableSketch::kHostColumns ||
         choice == TableSketch::kGrid;
}

/// Of a choice that is a scheme over all ranks or hosts.
Sharding sharding_of(TableSketch choice) {
  switch (choice) {
    case TableSketch::kHostRows:
      return Sharding::kTableRowWise;
    case TableSketch::kHostColumns:
      return Sharding::kTableColumnWise;
    case TableSketch::kGrid:
      return Sharding::kGridShard;
    case TableSketch::kReplicate:
      return Sharding::kDataParallel;
    default:
      return Sharding::kRowWise;
  }
}

/// By row and column.
std::vector<Shard> in_order(std::vector<Shard> shards) {
  std::stable_sort(shards.begin(), shards.end(), [](const Shard& a, const Shard& b) {
    return std::pair(a.rows.begin, a.cols.begin) < std::pair(b.rows.begin, b.cols.begin);
  });
  return shards;
}

}  // namespace

Proposer::Proposer(const spec::Config& config,
                   const MeshCluster& mesh,
                   const Workload& workload,
                   spec::Plan start)
    : config_(config),
      cluster_(mesh.group),
      workload_(workload),
      estimator_(config, mesh, workload, start.parts),
      loads_(estimator_.shape()),
      start_(std::move(start)),
      capacity_(estimator_.capacity()) {
  if (config.collectives == spec::Collectives::kAuto) {
    start_.collectives = {};  // choose_forms() compares both with what is known of the links
  }
}

PlanSketch Proposer::open() const {
  PlanSketch sketch;
  for (const spec::Table& table : config_.tables) {
    TableSketch choice = TableSketch::kFixed;
    if (table.sharding == Sharding::kAuto) {
      choice = auto_sketch(table);
    } else if (table.sharding == Sharding::kTableWise && !is_pinned(table)) {
      choice = TableSketch::kWhole;
    } else if (table.sharding == Sharding::kColumnWise) {
      choice = TableSketch::kColumns;
    }
    sketch.tables.push_back(choice);
    sketch.pooled_at.push_back(table.pooled_at == PooledAt::kSample ? PooledAt::kSample
                                                                    : PooledAt::kOwner);
    sketch.hot_rows.push_back(table.hot_rows);
  }
  return sketch;
}

bool Proposer::allows(std::int64_t t, TableSketch choice) const {
  const spec::Table& table = config_.tables[at(t)];
  switch (choice) {
    case TableSketch::kReplicate:
      return table.hot_rows == 0 && planner::allows(table, to_string(sharding_of(choice)));
    case TableSketch::kSpread:
    case TableSketch::kHostRows:
    case TableSketch::kHostColumns:
    case TableSketch::kGrid:
      return planner::allows(table, to_string(sharding_of(choice)));
    default:
      return true;
  }
}

bool Proposer::is_by_frequency(std::int64_t t) const {
  return std::any_of(workload_.features.begin(), workload_.features.end(),
                     [t](const FeatureUse& use) { return use.table == t && use.by_frequency; });
}

std::vector<std::int64_t> Proposer::hot_counts(std::int64_t t) const {
  const spec::Table& table = config_.tables[at(t)];
  const auto is_measured = [t](const FeatureUse& use) { return use.table != t || use.measured; };
  if (table.sharding != Sharding::kAuto || !table.allow.empty() || is_pinned(table) ||
      table.hot_rows > 0 ||
      !std::all_of(workload_.features.begin(), workload_.features.end(), is_measured)) {
    return {};
  }
  const std::int64_t most = most_hot_rows(config_, t, workload_.hot_rows);
  std::vector<std::int64_t> counts;
  for (const std::int64_t rows : kHotCounts) {
    if (rows <= most && rows <= table.num_embeddings / 2) {
      counts.push_back(rows);
    }
  }
  return counts;
}

const std::vector<Range>& Proposer::hot_rows(std::int64_t t, std::int64_t rows) {
  const auto [found, is_new] = hot_rows_.try_emplace({t, rows});
  if (is_new) {
    found->second = hottest_rows(config_, t, workload_.hot_rows, rows);
  }
  return found->second;
}

/// In the sketch in hand; the estimator keeps it.
const HotUse* Proposer::hot_use_of(std::int64_t t) {
  const bool any = sketch_.hot_rows[at(t)] > 0 && sketch_.tables[at(t)] != TableSketch::kReplicate;
  return any ? estimator_.hot_use_of(t, hot_rows(t, sketch_.hot_rows[at(t)])).get() : nullptr;
}

PlanSketch Proposer::with(PlanSketch sketch, TableSketch instead) const {
  for (std::size_t t = 0; t < sketch.tables.size(); ++t) {
    if (sketch.tables[t] == TableSketch::kCut) {
      sketch.tables[t] =
          allows(static_cast<std::int64_t>(t), instead) ? instead : TableSketch::kWhole;
    }
  }
  return sketch;
}

Range Proposer::all_rows(std::int64_t t) const {
  return {0, config_.tables[at(t)].num_embeddings};
}

Range Proposer::all_cols(std::int64_t t) const {
  return {0, config_.tables[at(t)].embedding_dim};
}

double Proposer::seconds(const ShardLoad& load) const {
  return estimator_.work_s(load) + sketch_.link_weight * estimator_.link_s(load);
}

/// The gathering of row gradients included.
ShardLoad Proposer::gathered(ShardLoad replica) const {
  replica.statistic_bytes *= static_cast<double>(estimator_.world_ranks() - 1);
  return replica;
}

/// That every rank spends on a replica.
double Proposer::replica_s(std::int64_t t) {
  return seconds(gathered(loads_.replica(t)));
}

PlanSketch Proposer::replicated(PlanSketch sketch, double factor) {
  sketch_ = sketch;
  std::int64_t bytes = 0;
  for (std::int64_t t = 0; t < tables() && factor > 0.0; ++t) {
    if (sketch.tables[at(t)] != TableSketch::kCut || !allows(t, TableSketch::kReplicate)) {
      continue;
    }
    const ShardLoad& whole = loads_.of({.table = t, .rows = all_rows(t), .cols = all_cols(t)});
    if (replica_s(t) < factor * seconds(whole) / static_cast<double>(ranks()) &&
        bytes + whole.bytes < capacity_ / 4) {
      sketch.tables[at(t)] = TableSketch::kReplicate;
      bytes += whole.bytes;
    }
  }
  return sketch;
}

PlanSketch Proposer::pooled_at_samples(PlanSketch sketch) {
  for (std::int64_t t = 0; t < tables(); ++t) {
    if (sketch.tables[at(t)] != TableSketch::kFixed && may_pool_anywhere(t)) {
      const std::vector<Shard> shards = spread(t);
      const auto hot_use =
          estimator_.hot_use_of(t, sketch.hot_rows[at(t)] > 0 ? hot_rows(t, sketch.hot_rows[at(t)])
                                                              : std::vector<Range>{});
      sketch.pooled_at[at(t)] = wire_bytes(t, shards, PooledAt::kSample, hot_use.get()) <
                                        wire_bytes(t, shards, PooledAt::kOwner, hot_use.get())
                                    ? PooledAt::kSample
                                    : PooledAt::kOwner;
    }
  }
  return sketch;
}

double Proposer::wire_bytes(std::int64_t t,
                            const spec::Shards& shards,
                            PooledAt pooled_at,
                            const HotUse* hot_use) {
  double bytes = 0.0;
  for (const Shard& shard : shards) {
    const ShardLoad& load = loads_.of(block_of(t, shard, pooled_at, hot_use));
    bytes += load.ids_bytes + load.vector_bytes + load.gradient_bytes;
  }
  return bytes;
}

double Proposer::block_s(std::int64_t t, const Shard& shard) {
  return estimator_.scalar_s(loads_.of(block_of(t, shard)));
}

double Proposer::held_s(std::int64_t t, const spec::TablePlan& plan) {
  const auto hot_use = estimator_.hot_use_of(t, plan.hot);
  const PooledAt pooled_at = is_fetched(plan) ? PooledAt::kSample : PooledAt::kOwner;
  double seconds = 0.0;
  for (const Shard& shard : plan.shards) {
    seconds += estimator_.scalar_s(loads_.of(block_of(t, shard, pooled_at, hot_use.get())));
  }
  if (hot_use) {
    seconds += static_cast<double>(ranks()) *
               estimator_.scalar_s(gathered(estimator_.hot_rows(t, *hot_use, pooled_at)));
  }
  return seconds;
}

/// A table of one piece without hot rows has its bags added where it is.
PooledAt Proposer::pooled_at(std::int64_t t, const RowSet& rows) const {
  return rows == RowSet(all_rows(t)) && sketch_.hot_rows[at(t)] == 0 ? PooledAt::kOwner
                                                                     : sketch_.pooled_at[at(t)];
}

Item Proposer::item(const Block& block, std::int64_t column_shards, std::int64_t group) {
  const ShardLoad& load = loads_.of({.table = block.table,
                                     .rows = block.rows,
                                     .cols = block.cols,
                                     .column_shards = column_shards,
                                     .pooled_at = pooled_at(block.table, block.rows),
                                     .hot_use = hot_use_of(block.table)});
  blocks_.push_back(block);
  return {.cost = seconds(load),
          .bytes = {load.bytes + estimator_.buffer_bytes(load), 0},
          .bins = {},
          .group = group,
          .tag = static_cast<std::int64_t>(blocks_.size()) - 1};
}

/// Two items of a block cut at `cut` of one axis.
std::array<Item, 2> Proposer::halves(const Item& whole, Range Block::* axis, std::int64_t cut) {
  Block first = blocks_[at(whole.tag)];
  Block second = first;
  (first.*axis).end = cut;
  (second.*axis).begin = cut;
  const std::int64_t beside = axis == &Block::cols ? 2 : 1;
  return {item(first, beside, whole.group), item(second, beside, whole.group)};
}

/// A table is cut along one axis only, so that its shards are a row or a column of blocks.
std::optional<std::array<Item, 2>> Proposer::halve(const Item& whole) {
  const Block block = blocks_[at(whole.tag)];
  if (!block.may_be_cut) {
    return std::nullopt;
  }
  const bool by_rows = block.rows != all_rows(block.table);
  const bool by_cols = block.cols != all_cols(block.table);
  const std::int64_t cut = spec::column_cut(config_.codecs);
  const std::int64_t width = block.cols.size() / cut;
  std::optional<std::array<Item, 2>> best;
  const spec::Table& table = config_.tables[at(block.table)];
  if (sketch_.axes == Axes::kBoth && !by_rows && width >= 2 &&
      planner::allows(table, "column_wise")) {
    best = halves(whole, &Block::cols, block.cols.begin + width / 2 * cut);
  }
  if (!by_cols && block.rows.size() >= 2 && planner::allows(table, "row_wise")) {
    const auto rows = halves(whole, &Block::rows, block.rows.begin + block.rows.size() / 2);
    const auto costlier = [](const std::array<Item, 2>& two) {
      return std::max(two[0].cost, two[1].cost);
    };
    if (!best || costlier(rows) < costlier(*best)) {
      best = rows;
    }
  }
  return best;
}

void Proposer::add_shards(Problem& problem, std::int64_t t, const spec::Shards& shards) {
  for (const Shard& shard : shards) {
    const ShardLoad& load = loads_.of(block_of(t, shard, pooled_at(t, shard.rows), hot_use_of(t)));
    Bin& bin = problem.bins[at(shard.rank)];
    bin.cost += seconds(load);
    bin.bytes[0] += load.bytes + estimator_.buffer_bytes(load);
  }
}

void Proposer::add_replica(Problem& problem, std::int64_t t) {
  const double seconds = replica_s(t);
  const std::int64_t bytes = loads_.replica(t).bytes;
  for (Bin& bin : problem.bins) {
    bin.cost += seconds;
    bin.bytes[0] += bytes;
  }
}

/// The hot rows of the sketch in hand, which every rank serves.
void Proposer::add_hot_rows(Problem& problem, std::int64_t t, spec::TablePlan& plan) {
  plan.hot.clear();
  const HotUse* const use = hot_use_of(t);
  if (use == nullptr) {
    return;
  }
  plan.hot = hot_rows(t, sketch_.hot_rows[at(t)]);
  const PooledAt place =
      config_.tables[at(t)].sharding == Sharding::kAuto ? sketch_.pooled_at[at(t)] : plan.pooled_at;
  const ShardLoad load = gathered(estimator_.hot_rows(t, *use, place));
  for (Bin& bin : problem.bins) {
    bin.cost += seconds(load);
    bin.bytes[0] += load.bytes;
  }
}

std::vector<Shard> Proposer::every_rank(std::int64_t t) const {
  std::vector<Shard> shards;
  shards.reserve(at(ranks()));
  for (std::int64_t r = 0; r < ranks(); ++r) {
    shards.push_back({.rank = r, .rows = all_rows(t), .cols = all_cols(t)});
  }
  return shards;
}

/// Rows in the order of their frequency are dealt out one by one.
std::vector<Shard> Proposer::spread(std::int64_t t) const {
  const std::int64_t rows = all_rows(t).end;
  const std::int64_t count = std::min(rows, ranks());
  const bool deals = is_by_frequency(t) && count > 1;
  std::vector<Shard> shards;
  shards.reserve(at(count));
  for (std::int64_t r = 0; r < count; ++r) {
    shards.push_back({.rank = r,
                      .rows = deals ? RowSet(r, rows, count) : RowSet(piece(rows, count, r)),
                      .cols = all_cols(t)});
  }
  return shards;
}

void Proposer::add_columns(Problem& problem, std::int64_t t) {
  const spec::Shards& shards = start_.tables[at(t)].shards;  // cut as make_plan() does
  for (const Shard& shard : shards) {
    problem.items.push_back(
        item({.table = t, .rows = {shard.rows.begin, shard.rows.end}, .cols = shard.cols},
             static_cast<std::int64_t>(shards.size()), shards.size() > 1 ? t : kNoGroup));
  }
}

/// A table's shards, where the choice says them, or its item.
void Proposer::hold(Problem& problem, std::int64_t t, spec::TablePlan& table) {
  add_hot_rows(problem, t, table);
  switch (sketch_.tables[at(t)]) {
    case TableSketch::kFixed:
      break;
    case TableSketch::kReplicate:
      table.sharding = Sharding::kDataParallel;
      table.shards = every_rank(t);
      break;
    case TableSketch::kSpread:
      table.sharding = Sharding::kRowWise;
      table.shards = spread(t);
      break;
    case TableSketch::kHostRows:
    case TableSketch::kHostColumns:
    case TableSketch::kGrid:
      table.shards = {};
      return;
    case TableSketch::kColumns:
      add_columns(problem, t);
      table.shards = {};
      return;
    case TableSketch::kWhole:
    case TableSketch::kCut:
      problem.items.push_back(item({.table = t,
                                    .rows = all_rows(t),
                                    .cols = all_cols(t),
                                    .may_be_cut = sketch_.tables[at(t)] == TableSketch::kCut},
                                   1, kNoGroup));
      table.shards = {};
      return;
  }
  table.sharding == Sharding::kDataParallel ? add_replica(problem, t)
                                            : add_shards(problem, t, table.shards);
}

/// The costliest first, each where least is to be done so far.
void Proposer::add_on_hosts(Problem& problem, spec::Plan& plan) {
  std::vector<std::pair<double, std::int64_t>> order;
  for (std::int64_t t = 0; t < tables(); ++t) {
    if (is_on_hosts(sketch_.tables[at(t)])) {
      const ShardLoad& whole = loads_.of(
          {.table = t, .rows = all_rows(t), .cols = all_cols(t), .hot_use = hot_use_of(t)});
      order.emplace_back(-seconds(whole), t);
    }
  }
  std::sort(order.begin(), order.end());
  const RankLayout target{.ranks = ranks(), .hosts = topology::rank_hosts(cluster_)};
  for (const auto& [cost, t] : order) {
    spec::Table table = config_.tables[at(t)];
    table.sharding = sharding_of(sketch_.tables[at(t)]);
    table.row_split = is_by_frequency(t) ? spec::RowSplit::kModulo : spec::RowSplit::kRange;
    std::vector<double> loads;
    for (const Bin& bin : problem.bins) {
      loads.push_back(bin.cost);
    }
    spec::TablePlan& held = plan.tables[at(t)];
    held.sharding = table.sharding;
    held.shards = place_table(table, spec::column_cut(config_.codecs), target, loads);
    add_shards(problem, t, held.shards);
  }
}

Proposer::Placed Proposer::partitioned(const HalvingLimits& limits) {
  blocks_.clear();
  Problem problem;
  problem.bins.assign(at(ranks()), Bin{.capacity = {capacity_, kUnlimited}});
  Placed placed{.plan = start_, .shortages = {}};
  for (std::int64_t t = 0; t < tables(); ++t) {
    hold(problem, t, placed.plan.tables[at(t)]);
  }
  add_on_hosts(problem, placed.plan);
  const Halved halved =
      halve_hottest(problem, [this](const Item& whole) { return halve(whole); }, limits);
  add_items(halved, placed);
  return placed;
}

/// Items become shards; what found no place goes to rank 0, so that the plan is whole, and is a
/// shortage.
void Proposer::add_items(const Halved& halved, Placed& placed) const {
  std::vector<std::vector<Shard>> shards(placed.plan.tables.size());
  for (std::size_t i = 0; i < halved.items.size(); ++i) {
    const Block& block = blocks_[at(halved.items[i].tag)];
    const std::int64_t rank = std::max<std::int64_t>(halved.partition.bin[i], 0);
    shards[at(block.table)].push_back({.rank = rank, .rows = block.rows, .cols = block.cols});
  }
  for (const Misfit& misfit : halved.partition.misfits) {
    const bool replicas = misfit.item == kNowhere;
    placed.shortages.push_back(
        {.table =
             replicas
                 ? std::string()
                 : config_.tables[at(blocks_[at(halved.items[at(misfit.item)].tag)].table)].name,
         .rank = misfit.bin,
         .missing = misfit.missing});
  }
  for (std::int64_t t = 0; t < tables(); ++t) {
    if (!shards[at(t)].empty()) {
      placed.plan.tables[at(t)].shards = in_order(std::move(shards[at(t)]));
    }
    finish_table(t, placed.plan.tables[at(t)]);
  }
}

/// The scheme that its shards are, and where bags are added.
void Proposer::finish_table(std::int64_t t, spec::TablePlan& table) const {
  if (config_.tables[at(t)].sharding != Sharding::kAuto) {
    return;
  }
  const TableSketch choice = sketch_.tables[at(t)];
  if (!is_on_hosts(choice) && choice != TableSketch::kReplicate) {
    table.sharding = table.shards.size() == 1                           ? Sharding::kTableWise
                     : table.shards.front().rows == RowSet(all_rows(t)) ? Sharding::kColumnWise
                                                                        : Sharding::kRowWise;
  }
  table.pooled_at = pooled_at(t, table.shards.front().rows);
}

Proposal Proposer::propose(std::string name, spec::Plan plan) {
  Proposal proposal{.name = std::move(name), .plan = std::move(plan), .cost = {}, .shortages = {}};
  proposal.cost = estimator_.cost(proposal.plan, loads_);
  for (std::size_t r = 0; r < proposal.cost.ranks.size(); ++r) {
    const RankCost& rank = proposal.cost.ranks[r];
    if (rank.bytes() > capacity_) {
      proposal.shortages.push_back(
          {.table = {}, .rank = static_cast<std::int64_t>(r), .missing = rank.bytes() - capacity_});
    }
  }
  return proposal;
}

Proposal Proposer::propose(std::string name,
                           const PlanSketch& sketch,
                           const HalvingLimits& limits) {
  sketch_ = sketch;
  Placed placed = partitioned(limits);
  Proposal proposal = propose(std::move(name), std::move(placed.plan));
  if (!placed.shortages.empty()) {
    proposal.shortages = std::move(placed.shortages);
  }
  return proposal;
}

}  // namespace weft::planner
