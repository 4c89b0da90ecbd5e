#include "weft/planner/search.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/planner/partition.h"
#include "weft/planner/place.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using spec::Shard;
using spec::Sharding;

constexpr std::array<double, 5> kReplicaFactors = {0.0, 0.5, 1.0, 2.0, 4.0};
// How much a second on links counts beside a second of work. A step is a sum of maxima, so which
// sum is best to balance depends on which of them stand out.
constexpr std::array<double, 3> kLinkWeights = {1.0, 0.25, 4.0};

constexpr std::int64_t kRefineWork = 3'000'000;  // items × ranks that refining may partition
constexpr std::int64_t kMostRefinements = 24;
constexpr std::size_t kTriedTables = 3;  // of the hottest rank

std::size_t at(std::int64_t i) {
  return static_cast<std::size_t>(i);
}

/// How a table may be held.
enum class Choice : std::uint8_t {
  kFixed,      ///< as make_plan() has it
  kWhole,      ///< one shard, placed by the search
  kColumns,    ///< as many column shards as the configuration says, placed by the search
  kCut,        ///< shards that the search cuts and places
  kReplicate,  ///< data_parallel
  kSpread,     ///< row_wise over all ranks
};

/// Along what a table may be cut. Cut by columns it needs one more exchange, of row statistics.
enum class Axes : std::uint8_t { kBoth, kRows };

/// A block that an item stands for.
struct Block {
  std::int64_t table = 0;
  Range rows;
  Range cols;
  bool may_be_cut = false;
};

class Search {
 public:
  Search(const spec::Config& config,
         const topology::Cluster& cluster,
         const Workload& workload,
         spec::Plan start)
      : config_(config),
        workload_(workload),
        estimator_(config, cluster, workload, start.parts),
        start_(std::move(start)),
        capacity_(estimator_.capacity()) {}

  SearchResult run() {
    const auto is_limited = [](const spec::Table& table) { return !table.allow.empty(); };
    if (std::none_of(config_.tables.begin(), config_.tables.end(), is_limited)) {
      propose("greedy by bytes and lookups", start_);  // make_plan() does not ask what is allowed
    }
    const std::vector<Choice> open = choices();
    propose("table_wise", partitioned(with(open, Choice::kWhole)));
    if (open != with(open, Choice::kWhole)) {
      propose("row_wise", partitioned(with(open, Choice::kSpread)));
      axes_ = Axes::kRows;
      propose("cut only what is too large", partitioned(open, {.rounds = 0}));
      for (Proposal& one : proposals_) {
        one.simple = true;
      }
      if (may_fit()) {
        propose_balanced(open);
        refine();
      }
    }
    sort();
    return {.proposals = std::move(proposals_), .capacity = capacity_};
  }

 private:
  /// A proposal to refine: how it was made.
  struct Made {
    std::size_t proposal = 0;
    double link_weight = 1.0;
    Axes axes = Axes::kBoth;
    std::vector<Choice> choices;
  };

  /// Whether all ranks together have room for every table once. If not, no cut helps.
  [[nodiscard]] bool may_fit() const {
    double bytes = 0.0;
    for (const spec::Table& table : config_.tables) {
      bytes +=
          static_cast<double>(cost::shard_bytes(table, table.num_embeddings, table.embedding_dim));
    }
    return bytes <= static_cast<double>(capacity_) * static_cast<double>(estimator_.ranks());
  }

  [[nodiscard]] bool is_new(const spec::Plan& plan) const {
    return std::none_of(proposals_.begin(), proposals_.end(),
                        [&](const Proposal& one) { return one.plan == plan; });
  }

  /// Fewer replicas than more of the factors ask for are the same proposal.
  void propose_balanced(const std::vector<Choice>& open) {
    for (const double factor : kReplicaFactors) {
      const std::vector<Choice> choices = replicated(open, factor);
      if (!made_.empty() && made_.back().choices == choices) {
        continue;
      }
      for (const Axes axes : {Axes::kBoth, Axes::kRows}) {
        for (const double weight : kLinkWeights) {
          link_weight_ = weight;
          axes_ = axes;
          Placed placed = partitioned(choices);
          if (is_new(placed.plan)) {
            made_.push_back({proposals_.size(), weight, axes, choices});
            propose(fmt::format("balanced{}{}{}", axes == Axes::kRows ? ", rows" : "",
                                factor == 0.0 ? "" : fmt::format(", f {:.1f}", factor),
                                weight == 1.0 ? "" : fmt::format(", links {}", weight)),
                    std::move(placed));
          }
        }
      }
    }
    link_weight_ = 1.0;
  }

  /// What the configuration leaves open: kCut where anything goes.
  [[nodiscard]] std::vector<Choice> choices() const {
    std::vector<Choice> all;
    for (const spec::Table& table : config_.tables) {
      switch (table.sharding) {
        case Sharding::kAuto:
          all.push_back(auto_choice(table));
          break;
        case Sharding::kTableWise:
          all.push_back(is_pinned(table) ? Choice::kFixed : Choice::kWhole);
          break;
        case Sharding::kColumnWise:
          all.push_back(Choice::kColumns);
          break;
        default:
          all.push_back(Choice::kFixed);
      }
    }
    return all;
  }

  static bool is_pinned(const spec::Table& table) { return table.rank >= 0 || table.host >= 0; }

  static bool allows(const spec::Table& table, std::string_view scheme) {
    return table.allow.empty() ||
           std::find(table.allow.begin(), table.allow.end(), scheme) != table.allow.end();
  }

  static Choice auto_choice(const spec::Table& table) {
    if (is_pinned(table)) {
      return Choice::kFixed;
    }
    const bool only_replica = table.allow.size() == 1 && allows(table, "data_parallel");
    return only_replica ? Choice::kReplicate : Choice::kCut;
  }

  [[nodiscard]] bool allows(std::int64_t t, Choice choice) const {
    const spec::Table& table = config_.tables[at(t)];
    return choice == Choice::kReplicate ? allows(table, "data_parallel")
           : choice == Choice::kSpread  ? allows(table, "row_wise")
                                        : true;
  }

  /// `instead` of cuts, where that is allowed, and whole where not.
  [[nodiscard]] std::vector<Choice> with(std::vector<Choice> choices, Choice instead) const {
    for (std::size_t t = 0; t < choices.size(); ++t) {
      if (choices[t] == Choice::kCut) {
        choices[t] = allows(static_cast<std::int64_t>(t), instead) ? instead : Choice::kWhole;
      }
    }
    return choices;
  }

  [[nodiscard]] Range all_rows(std::int64_t t) const {
    return {0, config_.tables[at(t)].num_embeddings};
  }

  [[nodiscard]] Range all_cols(std::int64_t t) const {
    return {0, config_.tables[at(t)].embedding_dim};
  }

  /// Seconds that every rank spends on a replica, the gathering of row gradients included.
  [[nodiscard]] double replica_s(std::int64_t t) const {
    ShardLoad load = estimator_.replica(t);
    load.statistic_bytes *= static_cast<double>(estimator_.ranks() - 1);
    return seconds(load);
  }

  [[nodiscard]] std::vector<Choice> replicated(std::vector<Choice> choices, double factor) const {
    const auto ranks = static_cast<double>(estimator_.ranks());
    std::int64_t bytes = 0;
    for (std::size_t t = 0; t < choices.size(); ++t) {
      const auto table = static_cast<std::int64_t>(t);
      if (choices[t] != Choice::kCut || factor == 0.0 || !allows(table, Choice::kReplicate)) {
        continue;
      }
      const ShardLoad whole = estimator_.shard(table, all_rows(table), all_cols(table), 1);
      // All replicas together take a quarter of a rank at most.
      if (replica_s(table) < factor * seconds(whole) / ranks &&
          bytes + whole.bytes < capacity_ / 4) {
        choices[t] = Choice::kReplicate;
        bytes += whole.bytes;
      }
    }
    return choices;
  }

  [[nodiscard]] double seconds(const ShardLoad& load) const {
    return estimator_.work_s(load) + link_weight_ * estimator_.link_s(load);
  }

  Item item(const Block& block, std::int64_t column_shards, std::int64_t group) {
    const ShardLoad load = estimator_.shard(block.table, block.rows, block.cols, column_shards);
    blocks_.push_back(block);
    return {.cost = seconds(load),
            .bytes = {load.bytes + estimator_.buffer_bytes(load), 0},
            .bins = {},
            .group = group,
            .tag = static_cast<std::int64_t>(blocks_.size()) - 1};
  }

  /// Two items of a block cut at `cut` of one axis.
  std::array<Item, 2> halves(const Item& whole, Range Block::* axis, std::int64_t cut) {
    Block first = blocks_[at(whole.tag)];
    Block second = first;
    (first.*axis).end = cut;
    (second.*axis).begin = cut;
    const std::int64_t beside = axis == &Block::cols ? 2 : 1;
    return {item(first, beside, whole.group), item(second, beside, whole.group)};
  }

  /// A table is cut along one axis only, so that its shards are a row or a column of blocks.
  std::optional<std::array<Item, 2>> halve(const Item& whole) {
    const Block block = blocks_[at(whole.tag)];
    if (!block.may_be_cut) {
      return std::nullopt;
    }
    const bool by_rows = block.rows != all_rows(block.table);
    const bool by_cols = block.cols != all_cols(block.table);
    const std::int64_t width = block.cols.size() / spec::kColumnBlock;
    std::optional<std::array<Item, 2>> best;
    const spec::Table& table = config_.tables[at(block.table)];
    if (axes_ == Axes::kBoth && !by_rows && width >= 2 && allows(table, "column_wise")) {
      best = halves(whole, &Block::cols, block.cols.begin + width / 2 * spec::kColumnBlock);
    }
    if (!by_cols && block.rows.size() >= 2 && allows(table, "row_wise")) {
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

  void add_fixed(Problem& problem, std::int64_t t, const std::vector<Shard>& shards) const {
    for (const Shard& shard : shards) {
      const ShardLoad load = estimator_.shard(t, shard.rows, shard.cols, 1);
      Bin& bin = problem.bins[at(shard.rank)];
      bin.cost += seconds(load);
      bin.bytes[0] += load.bytes + estimator_.buffer_bytes(load);
    }
  }

  void add_replica(Problem& problem, std::int64_t t) const {
    const double seconds = replica_s(t);
    const std::int64_t bytes = estimator_.replica(t).bytes;
    for (Bin& bin : problem.bins) {
      bin.cost += seconds;
      bin.bytes[0] += bytes;
    }
  }

  /// Rows in the order of their frequency are dealt out one by one.
  [[nodiscard]] bool deals_rows(std::int64_t t) const {
    return config_.tables[at(t)].row_split == spec::RowSplit::kModulo ||
           std::any_of(workload_.features.begin(), workload_.features.end(),
                       [t](const FeatureUse& use) { return use.table == t && use.by_frequency; });
  }

  [[nodiscard]] std::vector<Shard> spread(std::int64_t t) const {
    const std::int64_t rows = all_rows(t).end;
    const std::int64_t count = std::min(rows, estimator_.ranks());
    std::vector<Shard> shards;
    for (std::int64_t r = 0; r < count; ++r) {
      shards.push_back({.rank = r,
                        .rows = deals_rows(t) && count > 1 ? RowSet(r, rows, count)
                                                           : RowSet(piece(rows, count, r)),
                        .cols = all_cols(t)});
    }
    return shards;
  }

  void add_columns(Problem& problem, std::int64_t t) {
    const std::vector<Shard>& shards = start_.tables[at(t)].shards;  // cut as make_plan() does
    for (const Shard& shard : shards) {
      problem.items.push_back(
          item({.table = t, .rows = {shard.rows.begin, shard.rows.end}, .cols = shard.cols},
               static_cast<std::int64_t>(shards.size()), shards.size() > 1 ? t : kNoGroup));
    }
  }

  struct Placed {
    spec::Plan plan;
    std::vector<Shortage> shortages;
  };

  Placed partitioned(const std::vector<Choice>& choices, const HalvingLimits& limits = {}) {
    blocks_.clear();
    Problem problem;
    problem.bins.assign(at(estimator_.ranks()), Bin{.capacity = {capacity_, kUnlimited}});
    Placed placed{.plan = start_, .shortages = {}};
    for (std::size_t i = 0; i < choices.size(); ++i) {
      const auto t = static_cast<std::int64_t>(i);
      spec::TablePlan& table = placed.plan.tables[i];
      switch (choices[i]) {
        case Choice::kFixed:
          table.sharding == Sharding::kDataParallel ? add_replica(problem, t)
                                                    : add_fixed(problem, t, table.shards);
          break;
        case Choice::kReplicate:
          table = replica_plan(t);
          add_replica(problem, t);
          break;
        case Choice::kSpread:
          table.sharding = Sharding::kRowWise;
          table.shards = spread(t);
          add_fixed(problem, t, table.shards);
          break;
        case Choice::kColumns:
          add_columns(problem, t);
          table.shards.clear();
          break;
        case Choice::kWhole:
        case Choice::kCut:
          problem.items.push_back(item({.table = t,
                                        .rows = all_rows(t),
                                        .cols = all_cols(t),
                                        .may_be_cut = choices[i] == Choice::kCut},
                                       1, kNoGroup));
          table.shards.clear();
          break;
      }
    }
    const Halved halved =
        halve_hottest(problem, [this](const Item& whole) { return halve(whole); }, limits);
    add_items(halved, placed);
    return placed;
  }

  [[nodiscard]] spec::TablePlan replica_plan(std::int64_t t) const {
    spec::TablePlan plan{
        .table = config_.tables[at(t)].name, .sharding = Sharding::kDataParallel, .shards = {}};
    for (std::int64_t r = 0; r < estimator_.ranks(); ++r) {
      plan.shards.push_back({.rank = r, .rows = all_rows(t), .cols = all_cols(t)});
    }
    return plan;
  }

  /// Items become shards; what found no place goes to rank 0, so that the plan is whole, and is a
  /// shortage.
  void add_items(const Halved& halved, Placed& placed) const {
    for (std::size_t i = 0; i < halved.items.size(); ++i) {
      const Block& block = blocks_[at(halved.items[i].tag)];
      const std::int64_t rank = std::max<std::int64_t>(halved.partition.bin[i], 0);
      placed.plan.tables[at(block.table)].shards.push_back(
          {.rank = rank, .rows = block.rows, .cols = block.cols});
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
    for (std::size_t t = 0; t < placed.plan.tables.size(); ++t) {
      finish_table(static_cast<std::int64_t>(t), placed.plan.tables[t]);
    }
  }

  void finish_table(std::int64_t t, spec::TablePlan& table) const {
    std::stable_sort(table.shards.begin(), table.shards.end(), [](const Shard& a, const Shard& b) {
      return std::pair(a.rows.begin, a.cols.begin) < std::pair(b.rows.begin, b.cols.begin);
    });
    const spec::Sharding asked = config_.tables[at(t)].sharding;
    if (asked != Sharding::kAuto || table.sharding == Sharding::kDataParallel) {
      return;
    }
    table.sharding = table.shards.size() == 1                   ? Sharding::kTableWise
                     : table.shards.front().rows == all_rows(t) ? Sharding::kColumnWise
                                                                : Sharding::kRowWise;
  }

  void propose(std::string name, const spec::Plan& plan) {
    Proposal proposal{
        .name = std::move(name), .plan = plan, .cost = estimator_.cost(plan), .shortages = {}};
    for (std::size_t r = 0; r < proposal.cost.ranks.size(); ++r) {
      const RankCost& rank = proposal.cost.ranks[r];
      const std::int64_t bytes = rank.table_bytes + static_cast<std::int64_t>(rank.buffer_bytes);
      if (bytes > capacity_) {
        proposal.shortages.push_back(
            {.table = {}, .rank = static_cast<std::int64_t>(r), .missing = bytes - capacity_});
      }
    }
    proposals_.push_back(std::move(proposal));
  }

  void propose(const std::string& name, Placed placed) {
    propose(name, placed.plan);
    if (!placed.shortages.empty()) {
      proposals_.back().shortages = std::move(placed.shortages);
    }
  }

  static bool better(const Proposal& a, const Proposal& b) {
    return a.fits() != b.fits() ? a.fits() : a.cost.step_s < b.cost.step_s;
  }

  void sort() { std::stable_sort(proposals_.begin(), proposals_.end(), better); }

  /// Tables of the rank with most work, costliest first, that may still be held otherwise.
  [[nodiscard]] std::vector<std::int64_t> hottest_tables(const Proposal& proposal,
                                                         const std::vector<Choice>& choices) const {
    const auto& ranks = proposal.cost.ranks;
    const auto hottest =
        std::max_element(ranks.begin(), ranks.end(),
                         [this](const RankCost& a, const RankCost& b) {
                           return estimator_.scalar_s(a.load) < estimator_.scalar_s(b.load);
                         }) -
        ranks.begin();
    std::vector<std::pair<double, std::int64_t>> tables;
    for (std::size_t t = 0; t < choices.size(); ++t) {
      for (const Shard& shard : proposal.plan.tables[t].shards) {
        if (choices[t] == Choice::kCut && shard.rank == hottest) {
          const auto table = static_cast<std::int64_t>(t);
          tables.emplace_back(
              -estimator_.scalar_s(estimator_.shard(table, shard.rows, shard.cols, 1)), table);
          break;
        }
      }
    }
    std::sort(tables.begin(), tables.end());
    std::vector<std::int64_t> costliest;
    for (std::size_t i = 0; i < std::min(kTriedTables, tables.size()); ++i) {
      costliest.push_back(tables[i].second);
    }
    return costliest;
  }

  void refine() {
    if (made_.empty()) {
      return;  // all of them are what simpler proposals are
    }
    const Made* best = made_.data();
    for (const Made& one : made_) {
      best = better(proposals_[one.proposal], proposals_[best->proposal]) ? &one : best;
    }
    Proposal refined = proposals_[best->proposal];
    refined.name = "refined";
    std::vector<Choice> choices = best->choices;
    link_weight_ = best->link_weight;
    axes_ = best->axes;
    const std::int64_t size = static_cast<std::int64_t>(config_.tables.size()) * estimator_.ranks();
    std::int64_t left = std::min(kMostRefinements, kRefineWork / std::max<std::int64_t>(size, 1));
    bool improved = true;
    bool any = false;
    while (improved && left > 0) {
      improved = false;
      for (const std::int64_t t : hottest_tables(refined, choices)) {
        for (const Choice choice : {Choice::kReplicate, Choice::kSpread}) {
          if (improved || !allows(t, choice) || left-- <= 0) {
            continue;
          }
          std::vector<Choice> changed = choices;
          changed[at(t)] = choice;
          propose("refined", partitioned(changed));
          if (better(proposals_.back(), refined)) {
            refined = proposals_.back();
            choices = std::move(changed);
            improved = any = true;
          }
          proposals_.pop_back();
        }
      }
    }
    if (any) {
      proposals_.push_back(std::move(refined));
    }
  }

  const spec::Config& config_;
  const Workload& workload_;
  Estimator estimator_;
  spec::Plan start_;
  std::int64_t capacity_;
  std::vector<Block> blocks_;  // of the partition in hand, by tag
  std::vector<Proposal> proposals_;
  std::vector<Made> made_;  // the balanced ones of them
  // Of the partition in hand:
  double link_weight_ = 1.0;
  Axes axes_ = Axes::kBoth;
};

std::vector<std::int64_t> hosts_of(const topology::Cluster& cluster) {
  std::vector<std::int64_t> hosts;
  for (std::int64_t r = 0; r < topology::ranks(cluster); ++r) {
    hosts.push_back(topology::host_of(cluster, r));
  }
  return hosts;
}

std::int64_t shortest_of(const SearchResult& result) {
  std::int64_t missing = 0;
  for (const Shortage& shortage : result.best().shortages) {
    missing = std::max(missing, shortage.missing);
  }
  return missing;
}

bool fits(const spec::Config& config, const topology::Cluster& cluster) {
  return search(config, cluster, make_workload(config)).best().fits();
}

/// The fewest ranks, doubling, with which it fits; 0 where none up to 64 times as many does.
std::int64_t ranks_that_fit(spec::Config config, const topology::Cluster& cluster) {
  const std::int64_t now = topology::ranks(cluster);
  config.numerics.parts = 0;
  for (std::int64_t ranks = 2 * now; ranks <= 64 * now && ranks <= 65536; ranks *= 2) {
    if (fits(config, resized(cluster, ranks))) {
      return ranks;
    }
  }
  return 0;
}

}  // namespace

SearchResult search(const spec::Config& config,
                    const topology::Cluster& cluster,
                    const Workload& workload) {
  topology::check(cluster);
  const PlanTarget target{.ranks = topology::ranks(cluster), .hosts = hosts_of(cluster)};
  return Search(config, cluster, workload, make_plan(config, target)).run();
}

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
            const topology::Cluster& cluster) {
  const Proposal& best = result.best();
  std::int64_t bytes = 0;
  for (const RankCost& rank : best.cost.ranks) {
    bytes += rank.table_bytes;
  }
  const auto text = [](std::int64_t count) {
    return format_bytes(static_cast<std::uint64_t>(count));
  };
  std::vector<std::string> changes;
  const std::int64_t ranks = ranks_that_fit(config, cluster);
  if (ranks > 0) {
    changes.push_back(fmt::format("{} ranks of this kind", ranks));
  }
  changes.push_back(fmt::format("{} more memory per rank", text(shortest_of(result))));
  spec::Config halved = config;
  for (spec::Table& table : halved.tables) {
    table.dtype = spec::RowDType::kBf16;
  }
  if (fits(halved, cluster)) {
    changes.emplace_back("rows of bf16 (dtype: bf16)");
  }
  const auto bytes_of = [](const spec::Table& table) {
    return cost::shard_bytes(table, table.num_embeddings, table.embedding_dim);
  };
  const spec::Table& largest = *std::max_element(
      config.tables.begin(), config.tables.end(),
      [&](const spec::Table& a, const spec::Table& b) { return bytes_of(a) < bytes_of(b); });
  const Shortage& first = best.shortages.front();
  fail(
      ErrorCode::kConfig,
      "no plan fits: tables and their state take {}, most of it table {} with {}; each of the {} "
      "ranks has {} for tables and the buffers of their exchanges. In the best plan {} lacks {} on "
      "rank {}. It fits with {}",
      text(bytes), largest.name, text(bytes_of(largest)), topology::ranks(cluster),
      text(result.capacity),
      first.table.empty() ? std::string("what lies there") : "table " + first.table,
      text(first.missing), first.rank, fmt::join(changes, ", or with "));
}

}  // namespace weft::planner
