#include "weft/planner/partition.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/partition_cases.h"
#include "weft/base/error.h"

namespace weft::planner {
namespace {

using Bins = std::vector<std::int64_t>;
using Costs = std::vector<double>;

std::string error_of_partition(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kUsage);
    return error.what();
  }
  return "no error";
}

TEST(Greedy, LargestFirstOnTheLeastCostly) {
  const Partition p = greedy(costs_onto({8, 7, 6, 5, 4}, 2));
  EXPECT_EQ(p.bin, (Bins{0, 1, 1, 0, 0}));
  EXPECT_EQ(p.cost, (Costs{17, 13}));
  EXPECT_DOUBLE_EQ(p.imbalance(), 17.0 / 15.0);
  EXPECT_TRUE(p.feasible());
}

TEST(Greedy, ItsWorstCase) {
  // 2k + 1 items of 2k - 1, 2k - 1, .., k + 1, k + 1, k, k, k: 4k - 1 where 3k is possible.
  const Problem problem = costs_onto({5, 5, 4, 4, 3, 3, 3}, 3);
  EXPECT_EQ(greedy(problem).max_cost(), 11);
  EXPECT_EQ(Exact(problem)(), 9);
  EXPECT_EQ(best_of(problem).max_cost(), 9);
}

TEST(Greedy, WhatBinsHoldCounts) {
  Problem problem = costs_onto({3, 2}, 2);
  problem.bins[0].cost = 4;
  const Partition p = greedy(problem);
  EXPECT_EQ(p.bin, (Bins{1, 1}));
  EXPECT_EQ(p.cost, (Costs{4, 5}));
}

TEST(GreedyBy, BalancesTheKeysAndReportsTheCost) {
  const Problem problem = costs_onto({10, 1, 1, 10}, 2);
  const Partition p = greedy_by(problem, std::vector<double>{1, 9, 8, 2});
  EXPECT_EQ(p.bin, (Bins{0, 0, 1, 1}));  // 9 | 8, 2 | 1: 10 each
  EXPECT_EQ(p.cost, (Costs{11, 11}));
}

TEST(Differencing, TheTextbooksExamples) {
  // 8 - 7 = 1, 6 - 5 = 1, 4 - 1 = 3, 3 - 1 = 2: sums that differ by 2.
  const Partition two = differencing(costs_onto({8, 7, 6, 5, 4}, 2));
  EXPECT_EQ(two.imbalance(), 16.0 / 15.0);
  // (8,7,0) with 6: (2,1,0); (5,4,0) with it: {8} {7,4} {6,5}.
  const Partition three = differencing(costs_onto({8, 7, 6, 5, 4}, 3));
  Costs sums = three.cost;
  std::sort(sums.begin(), sums.end());
  EXPECT_EQ(sums, (Costs{8, 11, 11}));
  EXPECT_EQ(three.bin[1], three.bin[4]);
  EXPECT_EQ(three.bin[2], three.bin[3]);
}

TEST(Differencing, AGroupIsApartFromTheStart) {
  // Unbound, {8, 5} {7, 6}. Bound, 7 and 6 start apart: 8 - 5 = 3 against their 1.
  Problem problem = costs_onto({8, 7, 6, 5}, 2);
  problem.items[1].group = 0;
  problem.items[2].group = 0;
  const Partition p = differencing(problem);
  EXPECT_EQ(broken(problem, p), "");
  EXPECT_EQ(p.max_cost(), 14);
}

TEST(Differencing, StartsFromWhatBinsHold) {
  Problem problem = costs_onto({6, 5}, 3);
  problem.bins[0].cost = 5;
  problem.bins[2].cost = 1;
  const Partition p = differencing(problem);
  EXPECT_EQ(p.bin, (Bins{1, 2}));
  EXPECT_EQ(p.cost, (Costs{5, 6, 6}));
}

TEST(Differencing, FewerItemsThanBins) {
  const Partition p = differencing(costs_onto({3, 9}, 5));
  EXPECT_EQ(p.max_cost(), 9);
  EXPECT_NE(p.bin[0], p.bin[1]);
  EXPECT_EQ(differencing(costs_onto({}, 2)).cost, (Costs{0, 0}));
}

TEST(Partition, PinsAndHostsAreKept) {
  Problem problem = costs_onto({9, 9, 9, 1}, 4);
  problem.items[0].bins = {3, 4};
  problem.items[1].bins = {2, 4};
  problem.items[2].bins = {2, 4};
  for (const Partition& p : {greedy(problem), differencing(problem), best_of(problem)}) {
    EXPECT_EQ(broken(problem, p), "");
    EXPECT_EQ(p.bin[0], 3);
    EXPECT_EQ(p.max_cost(), 18);
  }
  EXPECT_EQ(lower_bound(problem), 9);  // it does not see that three items share two bins
}

TEST(Partition, AnItemMovesAnotherOutOfItsWay) {
  // Greedy by cost fills bin 0 with a, bin 1 with b, and c then fits in neither.
  Problem problem = costs_onto({3, 2, 1}, 2);
  problem.items[0].bytes = {4, 0};
  problem.items[1].bytes = {6, 0};
  problem.items[2].bytes = {10, 0};
  problem.bins[0].capacity = {10, 0};
  problem.bins[1].capacity = {10, 0};
  for (const Partition& p : {greedy(problem), differencing(problem), best_of(problem)}) {
    EXPECT_TRUE(p.feasible());
    EXPECT_EQ(broken(problem, p), "");
    EXPECT_EQ(p.max_cost(), 5);
  }
}

TEST(Partition, SaysWhatIsMissingWhere) {
  Problem problem = costs_onto({5, 1}, 2);
  problem.items[0].bytes = {50, 7};
  problem.items[1].bytes = {1, 1};
  problem.bins[0].capacity = {40, 3};
  problem.bins[1].capacity = {44, 2};
  const Partition p = best_of(problem);
  ASSERT_EQ(p.misfits.size(), 1U);
  EXPECT_FALSE(p.feasible());
  EXPECT_EQ(p.bin[0], kNowhere);
  const Bytes& held = p.bytes[1];
  EXPECT_EQ(p.misfits[0], (Misfit{.item = 0, .bin = 1, .tier = 0, .missing = 50 - (44 - held[0])}));
  EXPECT_EQ(broken(problem, p), "");
}

TEST(Partition, AGroupLargerThanItsBins) {
  Problem problem = costs_onto({3, 2, 1}, 2);
  for (Item& item : problem.items) {
    item.group = 7;
  }
  for (const Partition& p : {greedy(problem), differencing(problem), best_of(problem)}) {
    EXPECT_EQ(p.misfits, (std::vector<Misfit>{{.item = 2}}));
    EXPECT_EQ(broken(problem, p), "");
  }
}

TEST(Partition, ABinThatIsFullBeforeAnyItem) {
  Problem problem = costs_onto({1}, 2);
  problem.bins[1].bytes = {12, 0};
  problem.bins[1].capacity = {10, 0};
  const Partition p = greedy(problem);
  EXPECT_EQ(p.misfits, (std::vector<Misfit>{{.bin = 1, .missing = 2}}));
  EXPECT_EQ(p.bin, (Bins{0}));
}

TEST(Evaluate, CountsCostlyItemsFirst) {
  Problem problem = costs_onto({1, 5, 2}, 1);
  for (Item& item : problem.items) {
    item.bytes = {4, 0};
  }
  problem.bins[0].capacity = {9, 0};
  const Partition p = evaluate(problem, Bins{0, 0, 0});
  EXPECT_EQ(p.bin, (Bins{kNowhere, 0, 0}));
  EXPECT_EQ(p.misfits, (std::vector<Misfit>{{.item = 0, .bin = 0, .missing = 3}}));
  EXPECT_EQ(evaluate(problem, Bins{kNowhere, 0, kNowhere}).cost, (Costs{5}));
}

TEST(Improve, MovesAndSwaps) {
  const Problem problem = costs_onto({6, 5, 5, 4}, 2);
  EXPECT_EQ(improve(problem, evaluate(problem, Bins{0, 0, 1, 1})).max_cost(), 10);  // 6 for 5
  EXPECT_EQ(improve(problem, evaluate(problem, Bins{0, 0, 0, 0})).max_cost(), 10);
  EXPECT_EQ(improve(problem, evaluate(problem, Bins{0, 0, 0, 0}), {.max_steps = 1}).max_cost(), 14);
  // Within the slack of the bound: 11 <= 10 * 1.1, so it stays.
  EXPECT_EQ(improve(problem, evaluate(problem, Bins{0, 0, 1, 1}), {.good_enough = 0.1}).max_cost(),
            11);
}

TEST(LowerBound, EachOfItsReasons) {
  EXPECT_EQ(lower_bound(costs_onto({}, 3)), 0);
  EXPECT_DOUBLE_EQ(lower_bound(costs_onto({4, 3, 2}, 3)), 4);      // the largest
  EXPECT_NEAR(lower_bound(costs_onto({2, 2, 2, 2}, 2)), 4, 1e-9);  // the mean
  EXPECT_DOUBLE_EQ(lower_bound(costs_onto({5, 5, 5}, 2)), 10);     // two of three share
  EXPECT_DOUBLE_EQ(lower_bound(costs_onto({3, 3, 3, 3, 3}, 2)), 9);
  // 9, 9, 6, 6 and 5 on 4: the mean is 8.75, two of five share 11, and so they must.
  EXPECT_NEAR(lower_bound(costs_onto({9, 9, 6, 6, 5}, 4)), 11, 1e-6);
  // Packing: the 7s share with no 5, four 5s in two bins of at least 10; mean 9.25, pairs 10.
  EXPECT_DOUBLE_EQ(lower_bound(costs_onto({10, 5, 5}, 2)), 10);  // halves do share
  EXPECT_NEAR(lower_bound(costs_onto({7, 7, 5, 5, 5, 5, 3}, 4)), 10, 1e-6);
  Problem held = costs_onto({4}, 2);
  held.bins[0].cost = 9;
  EXPECT_DOUBLE_EQ(lower_bound(held), 9);
  held.bins[1].cost = 7;
  EXPECT_DOUBLE_EQ(lower_bound(held), 11);
  Problem host = costs_onto({4, 4, 4}, 4);
  for (Item& item : host.items) {
    item.bins = {2, 3};
  }
  EXPECT_DOUBLE_EQ(lower_bound(host), 12);
}

TEST(Partition, LargeOnesAreNearTheBound) {
  Draw draw(3);
  for (const auto& [items, bins] : std::vector<std::pair<int, std::size_t>>{
           {2000, 8}, {6000, 1024}, {20000, 4096}, {4000, 4096}}) {
    Problem problem;
    problem.bins.resize(bins);
    for (int i = 0; i < items; ++i) {
      problem.items.push_back({.cost = static_cast<double>(draw(1000, 10000))});
    }
    const double bound = lower_bound(problem);
    for (const Partition& p : {greedy(problem), differencing(problem), best_of(problem)}) {
      EXPECT_EQ(broken(problem, p), "");
      EXPECT_GE(p.max_cost(), bound * (1 - 1e-9));
    }
    // Observed: 1.0001, 1.007, 1.000, 1.
    EXPECT_LE(best_of(problem).max_cost(), 1.01 * bound) << items << " onto " << bins;
  }
}

TEST(Partition, MistakesAreNamed) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error_of_partition([] { greedy(costs_onto({1}, 0)); }),
            "partition: there are no bins; give one at least");
  EXPECT_EQ(error_of_partition([&] { greedy(costs_onto({1, nan}, 1)); }),
            "partition: item 1 costs nan; a cost is finite and not negative");
  EXPECT_EQ(error_of_partition([] { lower_bound(costs_onto({-1}, 1)); }),
            "partition: item 0 costs -1; a cost is finite and not negative");
  Problem problem = costs_onto({1}, 2);
  problem.items[0].bins = {1, 3};
  EXPECT_EQ(error_of_partition([&] { differencing(problem); }),
            "partition: item 0 may go to bins [1, 3), but there are 2");
  problem = costs_onto({1}, 1);
  problem.items[0].bytes = {0, -1};
  EXPECT_EQ(error_of_partition([&] { best_of(problem); }),
            "partition: item 0 has -1 bytes; bytes are not negative");
  problem.items[0].bytes = {std::int64_t{1} << 62, 0};
  problem.bins[0].bytes = {std::int64_t{1} << 62, 0};
  EXPECT_EQ(
      error_of_partition([&] { best_of(problem); }),
      "partition: all items and bins together have 9.223372036854776e+18 bytes; at most 2^62");
  problem = costs_onto({1}, 1);
  problem.items[0].group = -2;
  EXPECT_EQ(error_of_partition([&] { greedy(problem); }),
            "partition: item 0 is of group -2; groups are -1 (none) to 4611686018427387904");
  problem = costs_onto({1}, 1);
  EXPECT_EQ(error_of_partition([&] { greedy_by(problem, std::vector<double>{}); }),
            "partition: 0 keys for 1 items; give one for each");
  EXPECT_EQ(error_of_partition([&] { greedy_by(problem, std::vector<double>{nan}); }),
            "partition: the key of item 0 is nan; keys are finite and >= 0");
  EXPECT_EQ(error_of_partition([&] { evaluate(problem, Bins{1}); }),
            "partition: item 0 is put into bin 1, but there are 1");
  EXPECT_EQ(error_of_partition([&] { evaluate(problem, Bins{}); }),
            "partition: 0 places for 1 items; give one for each");
}

}  // namespace
}  // namespace weft::planner
