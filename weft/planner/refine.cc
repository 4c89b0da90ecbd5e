#include "weft/planner/refine.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "weft/base/at.h"

namespace weft::planner {
namespace {

using spec::PooledAt;
using spec::Shard;

constexpr std::int64_t kRefineWork = 3'000'000;  // items × ranks that refining may place
constexpr std::int64_t kMostChanges = 40;
constexpr std::size_t kTriedTables = 3;         // of the hottest rank
constexpr std::int64_t kTurnWork = 12'000'000;  // tables × ranks that turning may cost
constexpr std::int64_t kMostTurns = 24;
constexpr std::size_t kHotTables = 64;  // that may get hot rows: the costliest

/// One of a table's ways to be held that leaves its shards where they are.
struct Turn {
  std::int64_t table = 0;
  spec::TablePlan plan;
  double saved = 0.0;          ///< bytes on the wire; of hot rows seconds of all ranks
  std::int64_t hot_rows = -1;  ///< how many; -1: as before
};

class Refiner {
 public:
  Refiner(Proposer& proposer, Proposal& best, PlanSketch sketch)
      : proposer_(proposer), best_(best), sketch_(std::move(sketch)) {}

  bool run() {
    const std::int64_t size = std::max<std::int64_t>(proposer_.tables() * proposer_.ranks(), 1);
    const std::int64_t turns = std::clamp<std::int64_t>(kTurnWork / size, 4, kMostTurns);
    turn(turns);
    turn_hot_rows(turns);
    change(std::min(kMostChanges, kRefineWork / size));
    return any_;
  }

 private:
  bool keep(Proposal candidate) {
    if (!better(candidate, best_)) {
      return false;
    }
    best_ = std::move(candidate);
    return any_ = true;
  }

  [[nodiscard]] static bool rows_are_cut(const spec::TablePlan& table) {
    return table.sharding != spec::Sharding::kDataParallel &&
           table.shards.front().rows != table.shards.back().rows;
  }

  /// Whether its bags may be added at the samples.
  [[nodiscard]] static bool is_split(const spec::TablePlan& table) {
    return rows_are_cut(table) || !table.hot.empty();
  }

  /// Every n-th row instead of ranges, on the same ranks.
  [[nodiscard]] static spec::TablePlan dealt(const spec::TablePlan& table) {
    spec::TablePlan plan = table;
    plan.shards.edit([](std::vector<Shard>& shards) {
      const auto count = static_cast<std::int64_t>(shards.size());
      const std::int64_t rows = shards.back().rows.end;
      for (std::int64_t k = 0; k < count; ++k) {
        shards[at(k)].rows = RowSet(k, rows, count);
      }
    });
    return plan;
  }

  /// Most bytes saved first.
  [[nodiscard]] std::vector<Turn> pooling_turns() const {
    std::vector<Turn> turns;
    for (std::int64_t t = 0; t < proposer_.tables(); ++t) {
      const spec::TablePlan& table = best_.plan.tables[at(t)];
      if (!is_split(table) || !proposer_.may_pool_anywhere(t)) {
        continue;
      }
      Turn turn{.table = t, .plan = table};
      turn.plan.pooled_at =
          table.pooled_at == PooledAt::kOwner ? PooledAt::kSample : PooledAt::kOwner;
      const auto hot_use = proposer_.estimator().hot_use_of(t, table.hot);
      turn.saved = proposer_.wire_bytes(t, table.shards, table.pooled_at, hot_use.get()) -
                   proposer_.wire_bytes(t, table.shards, turn.plan.pooled_at, hot_use.get());
      turns.push_back(std::move(turn));
    }
    std::stable_sort(turns.begin(), turns.end(),
                     [](const Turn& a, const Turn& b) { return a.saved > b.saved; });
    return turns;
  }

  [[nodiscard]] std::vector<Turn> dealing_turns() const {
    std::vector<Turn> turns;
    for (std::int64_t t = 0; t < proposer_.tables(); ++t) {
      const spec::TablePlan& table = best_.plan.tables[at(t)];
      if (sketch_.tables[at(t)] == TableSketch::kCut && rows_are_cut(table) &&
          proposer_.is_by_frequency(t)) {
        turns.push_back({.table = t, .plan = dealt(table)});
      }
    }
    return turns;
  }

  /// Of the costliest tables, each with as many hot rows as save most.
  [[nodiscard]] std::vector<Turn> hot_turns() const {
    std::vector<std::pair<double, std::int64_t>> tables;
    for (std::int64_t t = 0; t < proposer_.tables(); ++t) {
      const spec::TablePlan& table = best_.plan.tables[at(t)];
      if (table.sharding != spec::Sharding::kDataParallel && !proposer_.hot_counts(t).empty()) {
        tables.emplace_back(-proposer_.held_s(t, table), t);
      }
    }
    std::sort(tables.begin(), tables.end());
    tables.resize(std::min(tables.size(), kHotTables));
    std::vector<Turn> turns;
    for (const auto& [cost, t] : tables) {
      std::optional<Turn> best;
      for (const std::int64_t rows : proposer_.hot_counts(t)) {
        Turn turn{.table = t, .plan = best_.plan.tables[at(t)], .hot_rows = rows};
        turn.plan.hot = proposer_.hot_rows(t, rows);
        turn.saved = -cost - proposer_.held_s(t, turn.plan);
        if (!best || turn.saved > best->saved) {
          best = std::move(turn);
        }
      }
      turns.push_back(std::move(*best));
    }
    std::stable_sort(turns.begin(), turns.end(),
                     [](const Turn& a, const Turn& b) { return a.saved > b.saved; });
    return turns;
  }

  /// The first so many.
  bool try_turns(const std::vector<Turn>& turns, std::size_t count) {
    spec::Plan plan = best_.plan;
    for (std::size_t i = 0; i < count; ++i) {
      plan.tables[at(turns[i].table)] = turns[i].plan;
    }
    if (!keep(proposer_.propose(best_.name, std::move(plan)))) {
      return false;
    }
    for (std::size_t i = 0; i < count; ++i) {
      sketch_.pooled_at[at(turns[i].table)] = turns[i].plan.pooled_at;
      if (turns[i].hot_rows >= 0) {
        sketch_.hot_rows[at(turns[i].table)] = turns[i].hot_rows;
      }
    }
    return true;
  }

  /// The first `count` at once, or half of them, or ...; then those behind, by themselves.
  bool try_ever_fewer(std::vector<Turn> turns, std::size_t count, std::int64_t& left) {
    bool any = false;
    while (count > 0 && left-- > 0) {
      if (try_turns(turns, count)) {
        any = true;
        break;
      }
      count /= 2;
    }
    for (std::size_t i = count; i < turns.size() && left-- > 0; ++i) {
      std::swap(turns[0], turns[i]);
      any |= try_turns(turns, 1);
    }
    return any;
  }

  /// Those that save something, one at least.
  [[nodiscard]] static std::size_t count_saving(const std::vector<Turn>& turns) {
    const auto saving =
        std::count_if(turns.begin(), turns.end(), [](const Turn& one) { return one.saved > 0.0; });
    return std::max(static_cast<std::size_t>(saving), std::min<std::size_t>(turns.size(), 1));
  }

  void turn_pooling(std::int64_t& left) {
    std::vector<Turn> turns = pooling_turns();
    const std::size_t count = count_saving(turns);
    try_ever_fewer(std::move(turns), count, left);
  }

  void turn(std::int64_t left) {
    turn_pooling(left);
    std::vector<Turn> turns = dealing_turns();
    const std::size_t count = turns.size();
    try_ever_fewer(std::move(turns), count, left);
  }

  void turn_hot_rows(std::int64_t left) {
    std::vector<Turn> turns = hot_turns();
    const std::size_t count = count_saving(turns);
    if (try_ever_fewer(std::move(turns), count, left)) {
      turn_pooling(left);
    }
  }

  /// Tables of the rank with most work, costliest first, that may still be held otherwise.
  [[nodiscard]] std::vector<std::int64_t> hottest_tables() const {
    const auto& ranks = best_.cost.ranks;
    const Estimator& estimator = proposer_.estimator();
    const auto hottest =
        std::max_element(ranks.begin(), ranks.end(),
                         [&](const RankCost& a, const RankCost& b) {
                           return estimator.scalar_s(a.load) < estimator.scalar_s(b.load);
                         }) -
        ranks.begin();
    std::vector<std::pair<double, std::int64_t>> tables;
    for (std::int64_t t = 0; t < proposer_.tables(); ++t) {
      for (const Shard& shard : best_.plan.tables[at(t)].shards) {
        if (sketch_.tables[at(t)] == TableSketch::kCut && shard.rank == hottest) {
          tables.emplace_back(-proposer_.block_s(t, shard), t);
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

  /// The first change of a table that helps.
  bool change_one(std::int64_t t, std::int64_t& left) {
    for (const TableSketch choice :
         {TableSketch::kReplicate, TableSketch::kSpread, TableSketch::kHostColumns,
          TableSketch::kHostRows, TableSketch::kGrid}) {
      if (!proposer_.allows(t, choice) || left-- <= 0) {
        continue;
      }
      PlanSketch changed = sketch_;
      changed.tables[at(t)] = choice;
      if (keep(proposer_.propose(best_.name, changed))) {
        sketch_ = std::move(changed);
        return true;
      }
    }
    return false;
  }

  void change(std::int64_t left) {
    bool improved = true;
    while (improved && left > 0) {
      improved = false;
      for (const std::int64_t t : hottest_tables()) {
        if (change_one(t, left)) {
          improved = true;
          break;
        }
      }
    }
  }

  Proposer& proposer_;
  Proposal& best_;
  PlanSketch sketch_;
  bool any_ = false;
};

}  // namespace

bool better(const Proposal& a, const Proposal& b) {
  return a.fits() != b.fits() ? a.fits() : a.cost.step_s < b.cost.step_s;
}

bool refine(Proposer& proposer, Proposal& best, PlanSketch sketch) {
  return Refiner(proposer, best, std::move(sketch)).run();
}

}  // namespace weft::planner
