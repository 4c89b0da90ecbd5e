#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/planner/partition_cases.h"
#include "weft/planner/partition.h"
#include "weft/planner/sample_tables.h"

namespace weft::planner {
namespace {

/// Costs halve with one more for each half, down to 4; bytes halve.
std::optional<std::array<Item, 2>> halve(const Item& item) {
  if (item.cost < 4) {
    return std::nullopt;
  }
  Item half = item;
  half.cost = item.cost / 2 + 1;
  Item other = half;
  half.bytes[0] = item.bytes[0] / 2;
  other.bytes[0] = item.bytes[0] - half.bytes[0];
  return std::array<Item, 2>{half, other};
}

Problem problem_of(const Problem& like, const Halved& halved) {
  return {.items = halved.items, .bins = like.bins};
}

TEST(HalveHottest, OneItemOntoEveryBin) {
  const Problem problem = costs_onto({1000}, 8);
  const Halved halved = halve_hottest(problem, halve);
  EXPECT_EQ(halved.items.size(), 8U);
  EXPECT_EQ(halved.halvings, 7);
  EXPECT_DOUBLE_EQ(halved.partition.max_cost(), 126.75);  // 1000 -> 501 -> 251.5 -> 126.75
  EXPECT_EQ(broken(problem_of(problem, halved), halved.partition), "");
}

TEST(HalveHottest, WhatIsEvenStaysWhole) {
  const Problem problem = costs_onto({50, 50, 50, 50}, 2);
  const Halved halved = halve_hottest(problem, halve);
  EXPECT_EQ(halved.halvings, 0);
  EXPECT_EQ(halved.items, problem.items);
}

TEST(HalveHottest, WhatFitsNowhereIsHalvedThoughItCostsNothing) {
  Problem problem = costs_onto({4, 1000, 1000}, 2);
  problem.items[0].bytes = {100, 0};
  for (Bin& bin : problem.bins) {
    bin.capacity = {60, 0};
  }
  const Halved halved = halve_hottest(problem, halve);
  EXPECT_TRUE(halved.partition.feasible());
  EXPECT_EQ(halved.halvings, 1);
  EXPECT_EQ(halved.items[0].bytes[0], 50);
}

TEST(HalveHottest, WhatCannotBeHalvedIsReported) {
  Problem problem = costs_onto({3}, 2);
  problem.items[0].bytes = {100, 0};
  problem.bins[0].capacity = {60, 0};
  problem.bins[1].capacity = {70, 0};
  const Halved halved = halve_hottest(problem, halve);
  EXPECT_EQ(halved.partition.misfits,
            (std::vector<Misfit>{{.item = 0, .bin = 1, .tier = 0, .missing = 30}}));
}

TEST(HalveHottest, StopsAtTheMostItems) {
  const Problem problem = costs_onto({1000}, 64);
  EXPECT_EQ(halve_hottest(problem, halve).items.size(), 64U);
  // Ten would not cost less than eight.
  EXPECT_EQ(halve_hottest(problem, halve, {.max_items = 10}).items.size(), 8U);
}

TEST(HalveHottest, HalvesThatSaveTooLittleAreNotMade) {
  const auto eight_tenths = [](const Item& item) {
    Item half = item;
    half.cost = 0.8 * item.cost;
    return std::optional(std::array<Item, 2>{half, half});
  };
  const Problem problem = costs_onto({100}, 4);
  EXPECT_EQ(halve_hottest(problem, eight_tenths, {.least_gain = 0.19}).items.size(), 4U);
  EXPECT_EQ(halve_hottest(problem, eight_tenths, {.least_gain = 0.21}).items.size(), 1U);
}

TEST(HalveHottest, NothingIsHalvedForNothing) {
  // The second item stays what it is, and is the maximum whatever becomes of the first.
  const auto first_only = [](const Item& item) {
    return item.tag == 0 ? halve(item) : std::nullopt;
  };
  Problem problem = costs_onto({99.7, 100.1}, 64);
  problem.items[1].tag = 1;
  EXPECT_EQ(halve_hottest(problem, first_only).halvings, 0);
}

TEST(HalveHottest, OnlyTheHottestWhereThatIsEnough) {
  // All items but one are halved together or not at all; halving one of the three is best.
  const Problem problem = costs_onto({100, 100, 100}, 2);
  const auto costly = [](const Item& item) {
    Item half = item;
    half.cost = item.cost / 2 + 10;
    return item.cost < 90 ? std::nullopt : std::optional(std::array<Item, 2>{half, half});
  };
  const Halved halved = halve_hottest(problem, costly);
  EXPECT_EQ(halved.halvings, 1);
  EXPECT_EQ(halved.partition.max_cost(), 160);
}

TEST(HalveHottest, TheCostliestBinComesFirst) {
  // 120 | 100, 100. Halves of the first cost 108 each and help nobody.
  const auto uneven = [](const Item& item) {
    Item half = item;
    half.cost = item.cost > 110 ? 0.9 * item.cost : item.cost / 2 + 10;
    return item.cost < 90 ? std::nullopt : std::optional(std::array<Item, 2>{half, half});
  };
  const Halved halved = halve_hottest(costs_onto({120, 100, 100}, 2), uneven);
  EXPECT_EQ(halved.halvings, 1);
  EXPECT_EQ(halved.partition.max_cost(), 180);
}

TEST(HalveHottest, HalvesStayOnTheirHost) {
  Problem problem = costs_onto({1000, 10}, 6);
  problem.items[0].bins = {2, 4};
  const Halved halved = halve_hottest(problem, [](const Item& item) {
    auto halves = halve(item);
    for (Item& half : *halves) {
      half.bins = {};  // the driver knows better
    }
    return halves;
  });
  EXPECT_EQ(halved.halvings, 1);  // two bins, so two halves
  for (std::size_t i = 0; i < halved.items.size(); ++i) {
    EXPECT_EQ(halved.items[i].bins, problem.items[i == 1 ? 1 : 0].bins);
  }
  EXPECT_EQ(broken(problem_of(problem, halved), halved.partition), "");
}

TEST(HalveHottest, PublicTablesOntoManyRanks) {
  // Ids cost a row and the bag a pooled row over a slower link; cut by rows only.
  Problem problem;
  problem.bins.resize(512);
  double ideal = 0.0;
  for (const TableUse& use : mlperf_dcnv2_tables()) {
    problem.items.push_back({.cost = use.mean_length + 2.0});
    ideal += problem.items.back().cost / 512;
  }
  const auto rows = [](const Item& item) {
    Item half = item;
    half.cost = (item.cost - 2.0) / 2 + 2.0;
    return std::optional(std::array<Item, 2>{half, half});
  };
  const Halved halved = halve_hottest(problem, rows);
  EXPECT_EQ(broken(problem_of(problem, halved), halved.partition), "");
  RecordProperty("over_ideal", fmt::format("{}", halved.partition.max_cost() / ideal));
  RecordProperty("halvings", static_cast<int>(halved.halvings));
  EXPECT_LE(halved.partition.max_cost(), 5.8 * ideal);  // 38 times uncut; a bag and one id: 5.77
}

RC_GTEST_PROP(HalveHottest, ConstraintsHoldAndItNeverHurts, ()) {
  const Problem problem = constrained(*rc::gen::arbitrary<std::uint64_t>(),
                                      *rc::gen::inRange(1, 20), *rc::gen::inRange(1, 9));
  const Halved halved = halve_hottest(problem, halve);
  const Problem made = problem_of(problem, halved);
  RC_ASSERT(broken(made, halved.partition) == std::string());
  RC_ASSERT(static_cast<std::int64_t>(made.items.size()) ==
            static_cast<std::int64_t>(problem.items.size()) + halved.halvings);
  std::map<std::int64_t, std::int64_t> bytes;
  for (const Item& item : problem.items) {
    bytes[item.tag] += item.bytes[0];
  }
  for (const Item& item : made.items) {
    bytes[item.tag] -= item.bytes[0];
  }
  for (const auto& [tag, left] : bytes) {
    RC_ASSERT(left == 0);
  }
  const Partition whole = best_of(problem);
  RC_ASSERT(halved.halvings > 0 || halved.partition == whole);
  RC_ASSERT(halve_hottest(problem, halve).partition == halved.partition);
}

}  // namespace
}  // namespace weft::planner
