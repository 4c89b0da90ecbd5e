#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/planner/partition_cases.h"
#include "weft/planner/partition.h"

namespace weft::planner {
namespace {

std::vector<Partition> all_of(const Problem& problem) {
  std::vector<double> bytes;
  for (const Item& item : problem.items) {
    bytes.push_back(static_cast<double>(item.bytes[0]));
  }
  return {greedy(problem),       greedy_by(problem, bytes),
          at_random(problem, 5), differencing(problem),
          best_of(problem),      improve(problem, at_random(problem, 6))};
}

Problem small_problem() {
  const auto bins = *rc::gen::inRange<std::size_t>(1, 5);
  const auto items = *rc::gen::inRange<std::size_t>(0, 9);
  return costs_onto(
      *rc::gen::container<std::vector<double>>(
          items, rc::gen::map(rc::gen::inRange(0, 100), [](int c) { return double{1} * c; })),
      bins);
}

RC_GTEST_PROP(PartitionProperty, ConstraintsAreKeptOrReported, ()) {
  const auto seed = *rc::gen::arbitrary<std::uint64_t>();
  const Problem problem = constrained(seed, *rc::gen::inRange(0, 40), *rc::gen::inRange(1, 9));
  const double bound = lower_bound(problem);
  for (const Partition& p : all_of(problem)) {
    RC_ASSERT(broken(problem, p) == std::string());
    RC_ASSERT(!p.feasible() || p.max_cost() >= bound * (1 - 1e-9));
    RC_ASSERT(evaluate(problem, p.bin) == p);
  }
}

RC_GTEST_PROP(PartitionProperty, BoundsHoldAgainstTheOptimum, ()) {
  const Problem problem = small_problem();
  const auto bins = static_cast<double>(problem.bins.size());
  const double optimum = Exact(problem)();
  const double tolerance = 1e-9 * (1.0 + optimum);
  RC_ASSERT(lower_bound(problem) <= optimum + tolerance);
  for (const Partition& p : all_of(problem)) {
    RC_ASSERT(p.max_cost() >= optimum - tolerance);
  }
  RC_ASSERT(greedy(problem).max_cost() <= (4.0 / 3.0 - 1.0 / (3.0 * bins)) * optimum + tolerance);
  RC_ASSERT(best_of(problem).max_cost() <=
            std::min(greedy(problem).max_cost(), differencing(problem).max_cost()) + tolerance);
}

RC_GTEST_PROP(PartitionProperty, PermutedItemsGiveThePermutedAnswer, ()) {
  Problem problem = constrained(*rc::gen::arbitrary<std::uint64_t>(), 20, 4);
  Problem permuted = problem;
  const Permutation order(problem.items.size(), *rc::gen::arbitrary<std::uint64_t>());
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    problem.items[i].cost += 0.001 * static_cast<double>(i);  // no two are alike
    permuted.items[order(i)] = problem.items[i];
  }
  const std::vector<Partition> before = all_of(problem);
  const std::vector<Partition> after = all_of(permuted);
  for (std::size_t a = 0; a < before.size(); ++a) {
    RC_ASSERT(after[a].cost == before[a].cost);
    for (std::size_t i = 0; i < problem.items.size(); ++i) {
      RC_ASSERT(after[a].bin[order(i)] == before[a].bin[i]);
    }
  }
}

RC_GTEST_PROP(PartitionProperty, TiesDoNotSeeTheOrderEither, ()) {
  // Many items are alike: which one goes where may differ, what bins cost and hold may not.
  Problem problem = constrained(*rc::gen::arbitrary<std::uint64_t>(), 30, 5);
  for (Item& item : problem.items) {
    item.cost = std::floor(item.cost / 7.0);
    item.bytes = {item.bytes[0] / 4, 0};
  }
  Problem permuted = problem;
  const Permutation order(problem.items.size(), *rc::gen::arbitrary<std::uint64_t>());
  for (std::size_t i = 0; i < problem.items.size(); ++i) {
    permuted.items[order(i)] = problem.items[i];
  }
  const std::vector<Partition> before = all_of(problem);
  const std::vector<Partition> after = all_of(permuted);
  for (std::size_t a = 0; a < before.size(); ++a) {
    RC_ASSERT(after[a].cost == before[a].cost);
    RC_ASSERT(after[a].bytes == before[a].bytes);
  }
}

RC_GTEST_PROP(PartitionProperty, ImprovingNeverHurts, ()) {
  const Problem problem = constrained(*rc::gen::arbitrary<std::uint64_t>(), 30, 6);
  const Partition start = at_random(problem, *rc::gen::arbitrary<std::uint64_t>());
  const Partition end = improve(problem, start);
  RC_ASSERT(end.misfits.size() <= start.misfits.size());
  if (end.misfits.size() == start.misfits.size()) {
    RC_ASSERT(end.max_cost() <= start.max_cost());
  }
}

/// How often each algorithm reaches the optimum, and its worst ratio.
struct Score {
  int optimal = 0;
  double worst = 1.0;
};

Score score(const std::vector<Partition>& made, const std::vector<double>& optimum) {
  Score out;
  for (std::size_t n = 0; n < made.size(); ++n) {
    const double ratio = made[n].max_cost() / optimum[n];
    out.optimal += ratio < 1 + 1e-9 ? 1 : 0;
    out.worst = std::max(out.worst, ratio);
  }
  return out;
}

TEST(PartitionQuality, AgainstTheOptimumOfSmallProblems) {
  Draw draw(17);
  std::vector<double> optimum;
  std::vector<Partition> lpt;
  std::vector<Partition> ldm;
  std::vector<Partition> ours;
  for (int n = 0; n < 400; ++n) {
    std::vector<double> costs;
    for (std::int64_t i = draw(6, 10); i > 0; --i) {
      costs.push_back(static_cast<double>(draw(1, 1000)));
    }
    const Problem problem = costs_onto(costs, static_cast<std::size_t>(draw(2, 4)));
    optimum.push_back(Exact(problem)());
    lpt.push_back(greedy(problem));
    ldm.push_back(differencing(problem));
    ours.push_back(best_of(problem));
  }
  const Score greedy_score = score(lpt, optimum);
  const Score ldm_score = score(ldm, optimum);
  const Score best_score = score(ours, optimum);
  RecordProperty("lpt", fmt::format("{} {}", greedy_score.optimal, greedy_score.worst));
  RecordProperty("ldm", fmt::format("{} {}", ldm_score.optimal, ldm_score.worst));
  RecordProperty("ours", fmt::format("{} {}", best_score.optimal, best_score.worst));
  EXPECT_GT(ldm_score.optimal, greedy_score.optimal);
  EXPECT_GE(best_score.optimal, 300);
  EXPECT_LE(best_score.worst, 1.1);
}

TEST(PartitionQuality, FindsRoomWhereThereIsSome) {
  int possible = 0;
  int found = 0;
  for (std::uint64_t seed = 0; seed < 400; ++seed) {
    const Problem problem = constrained(seed, 8, 3);
    possible += std::isfinite(Exact(problem)()) ? 1 : 0;
    found += best_of(problem).feasible() ? 1 : 0;
  }
  RecordProperty("possible", possible);
  RecordProperty("found", found);
  EXPECT_LE(found, possible);
  EXPECT_GE(found, possible * 95 / 100) << found << " of " << possible;
}

TEST(PartitionQuality, FindsRoomWhereMemoryIsTight) {
  // Costs and bytes have nothing to do with each other, and 4 % of the memory is to spare.
  int possible = 0;
  int found = 0;
  for (std::uint64_t seed = 0; seed < 300; ++seed) {
    Draw draw(seed);
    Problem problem;
    problem.bins.resize(3);
    std::int64_t total = 0;
    for (int i = 0; i < 10; ++i) {
      problem.items.push_back(
          {.cost = static_cast<double>(draw(1, 100)), .bytes = {draw(1, 100), 0}});
      total += problem.items.back().bytes[0];
    }
    for (Bin& bin : problem.bins) {
      bin.capacity[0] = total * 104 / 300;
    }
    possible += std::isfinite(Exact(problem)()) ? 1 : 0;
    found += best_of(problem).feasible() ? 1 : 0;
  }
  RecordProperty("possible", possible);
  RecordProperty("found", found);
  EXPECT_GT(possible, 250);
  EXPECT_GE(found, possible * 93 / 100) << found << " of " << possible;
}

}  // namespace
}  // namespace weft::planner
