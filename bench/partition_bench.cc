// How evenly the planner's partitioners spread sets of tables over ranks, beside rules that look at
// one property of a table, and how long they take. The limit of a maximum cost is the lower bound
// of the same items, so a share of 1 is an optimum.
//
// The cost of a shard is a simple model, stated here and nowhere else: nanoseconds per sample of
// the global batch. Memory: per id 8 bytes and 3 times the row (read, then read and written by the
// update) at 200 GB/s. Network: per id 8 bytes, the pooled row out and its gradient back, at 12.5
// GB/s. 2 ns per bag. A row is fp32 with 4 bytes of row-wise AdaGrad beside it. A rank holds 80 GB,
// or 1.15 times its share where all tables are more than that.
#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <functional>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/planner/partition.h"
#include "weft/planner/sample_tables.h"

namespace weft::bench {
namespace {

using planner::Halved;
using planner::Item;
using planner::Partition;
using planner::Problem;
using planner::TableUse;

constexpr double kMemoryBytesPerNs = 200.0;
constexpr double kNetworkBytesPerNs = 12.5;
constexpr double kBagNs = 2.0;
constexpr double kIdBytes = 8.0;
constexpr double kPasses = 3.0;
constexpr std::int64_t kRankBytes = 80'000'000'000;
constexpr double kSpare = 1.15;
constexpr std::int64_t kNarrowest = 16;

struct Options {
  bool quick = false;
  int seeds = 3;
  std::string out;
};

/// A block of a table: all its columns and rows, or some.
struct Shard {
  std::int64_t rows = 0;
  std::int64_t dim = 0;
  double ids = 0.0;  ///< per sample
};

double cost_ns(const Shard& shard) {
  const double row = 4.0 * static_cast<double>(shard.dim);
  const double memory = shard.ids * (kIdBytes + kPasses * row);
  const double network = shard.ids * kIdBytes + 2.0 * row;
  return memory / kMemoryBytesPerNs + network / kNetworkBytesPerNs + kBagNs;
}

std::int64_t bytes_of(const Shard& shard) {
  return shard.rows * (4 * shard.dim + 4);
}

/// Shards of all tables; an item's tag is its shard's index.
class Shards {
 public:
  explicit Shards(const std::vector<TableUse>& tables) {
    for (const TableUse& use : tables) {
      shards_.push_back({.rows = use.rows, .dim = use.dim, .ids = use.mean_length});
    }
  }

  [[nodiscard]] const Shard& of(const Item& item) const {
    return shards_[static_cast<std::size_t>(item.tag)];
  }

  Item item(const Shard& shard, std::int64_t group) {
    shards_.push_back(shard);
    return {.cost = cost_ns(shard),
            .bytes = {bytes_of(shard), 0},
            .group = group,
            .tag = static_cast<std::int64_t>(shards_.size()) - 1};
  }

  std::array<Item, 2> by_rows(const Item& item_to_cut) {
    const Shard whole = of(item_to_cut);
    Shard first = whole;
    first.rows = whole.rows / 2;
    first.ids = whole.ids / 2;
    Shard second = first;
    second.rows = whole.rows - first.rows;
    return {item(first, item_to_cut.group), item(second, item_to_cut.group)};
  }

  std::array<Item, 2> by_columns(const Item& item_to_cut) {
    const Shard whole = of(item_to_cut);
    Shard first = whole;
    first.dim = whole.dim / 2 / kNarrowest * kNarrowest;
    Shard second = whole;
    second.dim = whole.dim - first.dim;
    return {item(first, item_to_cut.group), item(second, item_to_cut.group)};
  }

  /// Along the axis that leaves the costlier half cheaper.
  std::optional<std::array<Item, 2>> halve(const Item& whole) {
    std::optional<std::array<Item, 2>> best;
    const auto costlier = [](const std::array<Item, 2>& halves) {
      return std::max(halves[0].cost, halves[1].cost);
    };
    if (of(whole).dim >= 2 * kNarrowest) {
      best = by_columns(whole);
    }
    if (of(whole).rows >= 2) {
      const std::array<Item, 2> rows = by_rows(whole);
      if (!best || costlier(rows) < costlier(*best)) {
        best = rows;
      }
    }
    return best;
  }

 private:
  std::vector<Shard> shards_;
};

/// One set onto one number of ranks.
struct Case {
  Shards shards;
  Problem problem;
  double ideal = 0.0;  ///< cost of all tables, uncut, over ranks
};

/// Whole tables, but those that fit on no rank halved by rows until they do.
Case make_case(const std::vector<TableUse>& tables, std::int64_t ranks) {
  Case made{.shards = Shards(tables), .problem = {}, .ideal = 0.0};
  std::int64_t total = 0;
  std::vector<Item> open;
  for (std::size_t t = 0; t < tables.size(); ++t) {
    const Shard whole{tables[t].rows, tables[t].dim, tables[t].mean_length};
    open.push_back(made.shards.item(whole, static_cast<std::int64_t>(t)));
    total += open.back().bytes[0];
    made.ideal += open.back().cost / static_cast<double>(ranks);
  }
  const std::int64_t capacity = std::max(
      kRankBytes,
      static_cast<std::int64_t>(kSpare * static_cast<double>(total) / static_cast<double>(ranks)));
  for (std::size_t i = 0; i < open.size(); ++i) {
    while (open[i].bytes[0] > capacity) {
      const std::array<Item, 2> halves = made.shards.by_rows(open[i]);
      open[i] = halves[0];
      open.push_back(halves[1]);
    }
  }
  made.problem.items = std::move(open);
  made.problem.bins.resize(static_cast<std::size_t>(ranks));
  for (planner::Bin& bin : made.problem.bins) {
    bin.capacity[0] = capacity;
  }
  return made;
}

std::vector<double> keys(const Case& data,
                         const Problem& problem,
                         const std::function<double(const Shard&)>& key) {
  std::vector<double> out;
  for (const Item& item : problem.items) {
    out.push_back(key(data.shards.of(item)));
  }
  return out;
}

constexpr std::array<const char*, 7> kAlgorithms = {"random", "size",         "dim",    "lookups",
                                                    "greedy", "differencing", "best_of"};

Partition run(const std::string& name, const Case& data, const Problem& problem, int seed) {
  if (name == "random") {
    return planner::at_random(problem, static_cast<std::uint64_t>(seed));
  }
  if (name == "size") {
    return planner::greedy_by(problem, keys(data, problem, [](const Shard& shard) {
                                return static_cast<double>(bytes_of(shard));
                              }));
  }
  if (name == "dim") {
    return planner::greedy_by(problem, keys(data, problem, [](const Shard& shard) {
                                return static_cast<double>(shard.dim);
                              }));
  }
  if (name == "lookups") {
    return planner::greedy_by(problem,
                              keys(data, problem, [](const Shard& shard) { return shard.ids; }));
  }
  if (name == "greedy") {
    return planner::greedy(problem);
  }
  return name == "differencing" ? planner::differencing(problem) : planner::best_of(problem);
}

/// What a run gives, one value per seed.
struct Outcome {
  std::vector<double> cost;
  std::vector<double> bound;
  std::vector<double> imbalance;
  std::vector<double> over_ideal;
  std::vector<double> bytes_imbalance;
  std::vector<double> seconds;
  std::vector<double> unplaced;
  std::vector<double> items;
};

void note(Outcome& outcome,
          const Case& data,
          const Problem& problem,
          const Partition& partition,
          double seconds) {
  outcome.cost.push_back(partition.max_cost());
  outcome.bound.push_back(planner::lower_bound(problem));
  outcome.imbalance.push_back(partition.imbalance());
  outcome.over_ideal.push_back(partition.max_cost() / data.ideal);
  outcome.bytes_imbalance.push_back(partition.bytes_imbalance(0));
  outcome.seconds.push_back(seconds);
  outcome.unplaced.push_back(static_cast<double>(partition.misfits.size()));
  outcome.items.push_back(static_cast<double>(problem.items.size()));
}

using Key = std::map<std::string, std::string>;  ///< tables, ranks, items, algorithm
using Outcomes = std::vector<std::pair<Key, Outcome>>;

/// Every algorithm on the items of one case, halved or not.
void run_all(Case& data,
             const Problem& problem,
             int seed,
             const Key& where,
             const std::function<Outcome&(const Key&)>& outcome) {
  for (const char* const algorithm : kAlgorithms) {
    const auto start = std::chrono::steady_clock::now();
    const Partition partition = run(algorithm, data, problem, seed);
    const double seconds = seconds_since(start);
    Key key = where;
    key["algorithm"] = algorithm;
    note(outcome(key), data, problem, partition, seconds);
  }
}

void run_case(const std::string& set,
              const std::vector<TableUse>& tables,
              std::int64_t ranks,
              int seed,
              const std::function<Outcome&(const Key&)>& outcome) {
  Case data = make_case(tables, ranks);
  Key where = {{"tables", set}, {"ranks", std::to_string(ranks)}, {"items", "whole"}};
  run_all(data, data.problem, seed, where, outcome);
  const auto start = std::chrono::steady_clock::now();
  const Halved halved = planner::halve_hottest(
      data.problem, [&](const Item& item) { return data.shards.halve(item); });
  const double seconds = seconds_since(start);
  const Problem problem{.items = halved.items, .bins = data.problem.bins};
  where["items"] = "halved";
  run_all(data, problem, seed, where, outcome);
  where["algorithm"] = "halve_hottest";
  note(outcome(where), data, problem, halved.partition, seconds);
}

std::vector<std::pair<std::string, std::vector<TableUse>>> table_sets(int seed) {
  const auto s = static_cast<std::uint64_t>(seed);
  return {{"production", planner::production_tables(s)},
          {"criteo_kaggle", planner::criteo_kaggle_tables()},
          {"mlperf_dcnv2", planner::mlperf_dcnv2_tables()},
          {"adversarial", planner::adversarial_tables(s)}};
}

Outcomes measure(const Options& options) {
  Outcomes outcomes;
  std::map<Key, std::size_t> index;
  const auto outcome = [&](const Key& key) -> Outcome& {
    const auto [at, fresh] = index.emplace(key, outcomes.size());
    if (fresh) {
      outcomes.emplace_back(key, Outcome{});
    }
    return outcomes[at->second].second;
  };
  const std::vector<std::int64_t> ranks =
      options.quick ? std::vector<std::int64_t>{8} : std::vector<std::int64_t>{8, 128, 1024, 4096};
  for (int seed = 1; seed <= (options.quick ? 1 : options.seeds); ++seed) {
    for (const auto& [name, tables] : table_sets(seed)) {
      for (const std::int64_t n : ranks) {
        run_case(name, tables, n, seed, outcome);
      }
    }
  }
  return outcomes;
}

std::vector<Figure> figures(const Outcomes& outcomes) {
  std::vector<Figure> all;
  for (const auto& [key, o] : outcomes) {
    const auto add = [&, &key = key](const char* name, const char* unit,
                                     const std::vector<double>& values) {
      all.push_back({name, key, unit, Better::kLower, values, {}});
    };
    add("max_cost", "ns/sample", o.cost);
    all.back().limit = Limit{"lower bound", o.bound};
    add("imbalance", "max/mean", o.imbalance);
    add("over_ideal", "max/mean of uncut tables", o.over_ideal);
    add("bytes_imbalance", "max/mean", o.bytes_imbalance);
    add("seconds", "s", o.seconds);
    add("unplaced", "items", o.unplaced);
    add("items", "items", o.items);
  }
  return all;
}

void print(const Outcomes& outcomes) {
  fmt::print("{:<14} {:>5} {:<7} {:<14} {:>6} {:>9} {:>9} {:>10} {:>9} {:>6} {:>9}\n", "tables",
             "ranks", "items", "algorithm", "items", "max/mean", "max/bound", "max/ideal", "bytes",
             "misfit", "seconds");
  for (const auto& [key, o] : outcomes) {
    std::vector<double> over_bound;
    for (std::size_t i = 0; i < o.cost.size(); ++i) {
      over_bound.push_back(o.cost[i] / o.bound[i]);
    }
    fmt::print(
        "{:<14} {:>5} {:<7} {:<14} {:>6.0f} {:>9.4f} {:>9.4f} {:>10.3f} {:>9.3f} {:>6.0f} "
        "{:>9.4f}\n",
        key.at("tables"), key.at("ranks"), key.at("items"), key.at("algorithm"), median(o.items),
        median(o.imbalance), median(over_bound), median(o.over_ideal), median(o.bytes_imbalance),
        median(o.unplaced), median(o.seconds));
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments("Compares partitioners on sets of tables");
  arguments.add_flag("--quick", options.quick, "8 ranks and one seed");
  arguments.add("--seeds", options.seeds, "Seeds 1 to N").within(1, 100);
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    const weft::bench::Outcomes outcomes = weft::bench::measure(options);
    weft::bench::print(outcomes);
    if (!options.out.empty()) {
      weft::bench::write_json(options.out, "partition", weft::bench::figures(outcomes));
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "partition_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
