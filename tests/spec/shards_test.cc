// Shards are rules where they can be: the list that they were made of, in little space.

#include "weft/spec/shards.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/spec/plan.h"

namespace weft::spec {
namespace {

/// The rows of a table over ranks, without empty shards, as planners deal them out.
std::vector<Shard> dealt(std::int64_t rows, std::int64_t ranks, CutBy by, Range cols = {0, 16}) {
  std::vector<Shard> shards;
  for (std::int64_t r = 0; r < ranks; ++r) {
    const RowSet own = by == CutBy::kRange    ? RowSet(piece(rows, ranks, r))
                       : by == CutBy::kModulo ? RowSet(r, rows, std::min(rows, ranks))
                                              : RowSet(0, rows);
    if (own.size() > 0 && (by != CutBy::kModulo || r < rows)) {
      shards.push_back({.rank = r, .rows = own, .cols = cols});
    }
  }
  return shards;
}

void expect_list(const Shards& shards, const std::vector<Shard>& list) {
  ASSERT_EQ(shards.size(), list.size());
  EXPECT_EQ(shards.empty(), list.empty());
  EXPECT_EQ(shards.list(), list);
  EXPECT_TRUE(std::equal(shards.begin(), shards.end(), list.begin(), list.end()));
  for (std::size_t i = 0; i < list.size(); ++i) {
    EXPECT_EQ(shards[i], list[i]) << i;
  }
  if (!list.empty()) {
    EXPECT_EQ(shards.front(), list.front());
    EXPECT_EQ(shards.back(), list.back());
  }
}

TEST(Shards, ARegularCutIsOneRule) {
  for (const CutBy by : {CutBy::kRange, CutBy::kModulo, CutBy::kCopy}) {
    for (const std::int64_t ranks : {1, 2, 3, 7, 64}) {
      for (const std::int64_t rows : {1, 2, 5, 63, 64, 65, 1000}) {
        const std::vector<Shard> list = dealt(rows, ranks, by);
        const Shards shards(list);
        SCOPED_TRACE(testing::Message() << rows << " rows over " << ranks << " ranks");
        expect_list(shards, list);
        EXPECT_EQ(shards.rules().size(), 1U);
      }
    }
  }
}

TEST(Shards, AnyListIsKept) {
  std::mt19937 random(5);
  const auto draw = [&](std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
  };
  int rules = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<Shard> list =
        dealt(draw(1, 30), draw(1, 12), static_cast<CutBy>(draw(0, 2)), {0, draw(1, 64)});
    for (std::int64_t change = draw(0, 2); change > 0; --change) {
      Shard& one = list[static_cast<std::size_t>(draw(0, std::ssize(list) - 1))];
      switch (draw(0, 4)) {
        case 0:
          one.rank = draw(0, 12);
          break;
        case 1:
          one.rows.begin = draw(0, 30);
          break;
        case 2:
          one.rows.end = draw(0, 30);
          break;
        case 3:
          one.rows.step = draw(1, 3);
          break;
        default:
          one.cols.end = draw(0, 64);
          break;
      }
    }
    const Shards shards(list);
    expect_list(shards, list);
    expect_list(Shards::as_written(shards.rules()), list);
    rules += shards.rules().size() < list.size() ? 1 : 0;
  }
  EXPECT_GT(rules, 500);
  EXPECT_LT(rules, 1500);
}

TEST(Shards, EditingMakesThemAnew) {
  Shards shards(dealt(100, 4, CutBy::kRange));
  shards.edit([](std::vector<Shard>& list) { list[1].rank = 3; });
  EXPECT_EQ(shards.rules().size(), 4U);
  shards.edit([](std::vector<Shard>& list) { list[1].rank = 1; });
  EXPECT_EQ(shards, Shards(dealt(100, 4, CutBy::kRange)));
}

/// 856 tables over 4,096 ranks: row-wise in ranges and dealt out, of more and of fewer rows than
/// ranks, copied, and some whole.
Plan large_plan() {
  Plan plan{.ranks = 4096, .parts = 4096, .tables = {}};
  for (std::int64_t t = 0; t < 856; ++t) {
    TablePlan table{.table = "feature_" + std::to_string(t), .shards = {}};
    const std::int64_t rows = 1 + t * t * 37;
    switch (t % 4) {
      case 0:
        table.sharding = Sharding::kTableWise;
        table.shards = {{.rank = t, .rows = {0, rows}, .cols = {0, 16}}};
        break;
      case 1:
        table.sharding = Sharding::kDataParallel;
        table.shards = dealt(rows, plan.ranks, CutBy::kCopy);
        break;
      default:
        table.sharding = Sharding::kRowWise;
        table.shards = dealt(rows, plan.ranks, t % 4 == 2 ? CutBy::kRange : CutBy::kModulo);
        break;
    }
    plan.tables.push_back(table);
  }
  return plan;
}

TEST(PlanText, IsShortForThousandsOfRanks) {
  const Plan plan = large_plan();
  const std::string text = plan_to_yaml(plan);
  RecordProperty("bytes", std::to_string(text.size()));
  EXPECT_LT(text.size(), std::size_t{856} * 256);
  EXPECT_EQ(plan_from_yaml(text, "plan.yaml"), plan);
}

/// A table of so many shards that follow no rule.
Plan plan_of_shards(std::int64_t shards) {
  std::vector<Shard> list;
  for (std::int64_t i = 0; i < shards; ++i) {
    const std::int64_t begin = 3 * i + i % 2;
    list.push_back({.rank = i * 7919 % 65521, .rows = {begin, begin + 2 + i % 3}, .cols = {0, 16}});
  }
  Plan plan{.ranks = 65536, .parts = 65536, .tables = {}};
  plan.tables.push_back({.table = "a", .sharding = Sharding::kRowWise, .shards = list});
  return plan;
}

// It could be written, and neither be read as a plan's file nor resumed from.
TEST(PlanText, LongerThanCanBeReadIsRefusedWhenItIsMade) {
  EXPECT_LT(plan_to_yaml(plan_of_shards(1000)).size(), std::size_t{1} << 20);
  try {
    static_cast<void>(plan_to_yaml(plan_of_shards(260000)));
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    const std::string text = error.what();
    EXPECT_TRUE(text.starts_with("the plan of 1 table on 65536 ranks takes ")) << text;
    EXPECT_NE(text.find(" MiB and may have 16: it could not be read again"), std::string::npos);
    EXPECT_NE(text.find("take another tables[].sharding"), std::string::npos);
  }
}

constexpr const char* kHead =
    "version: 1\nranks: 3\nparts: 8\ntables:\n  - table: a\n    sharding: row_wise\n    shards:\n";

// As programs wrote it that knew no rules.
TEST(PlanText, OfEveryShardIsThatOfTheRule) {
  const std::string each = std::string(kHead) +
                           "      - rank: 0\n        rows: [0, 3]\n        cols: [0, 16]\n"
                           "      - rank: 1\n        rows: [3, 6]\n        cols: [0, 16]\n"
                           "      - rank: 2\n        rows: [6, 10]\n        cols: [0, 16]\n";
  const std::string rule = std::string(kHead) +
                           "      - rank: 0\n        rows: [0, 10]\n        cols: [0, 16]\n"
                           "        count: 3\n";
  const Plan plan = plan_from_yaml(rule, "plan.yaml");
  EXPECT_EQ(plan_from_yaml(each, "plan.yaml"), plan);
  EXPECT_NE(plan_to_yaml(plan).find(rule.substr(rule.find("      - rank"))), std::string::npos)
      << plan_to_yaml(plan);
}

TEST(PlanText, ARuleThatIsNoCutIsRefused) {
  const auto error_of = [](const std::string& entry) {
    try {
      plan_from_yaml(std::string(kHead) + "      - {rank: 0, " + entry + "}\n", "plan.yaml");
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("no error");
  };
  EXPECT_EQ(error_of("rows: [0, 10], cols: [0, 16], count: 3, by: copy"), "no error");
  for (const char* entry :
       {"rows: [0, 10, 2], cols: [0, 16], count: 3", "rows: [5, 5], cols: [0, 16], count: 3",
        "rows: [0, 10], cols: [16, 16], count: 3",
        "rows: [0, 10], cols: [0, 16], count: 65536, rank_step: 65536"}) {
    EXPECT_NE(error_of(entry).find("tables.a.shards.0: rows ["), std::string::npos)
        << error_of(entry);
    EXPECT_NE(error_of(entry).find("plan.yaml:8"), std::string::npos) << error_of(entry);
  }
  EXPECT_NE(error_of("rows: [0, 10], cols: [0, 16], count: 0").find("count"), std::string::npos);
  EXPECT_NE(error_of("rows: [0, 10], cols: [0, 16], by: turns").find("range, modulo, copy"),
            std::string::npos)
      << error_of("rows: [0, 10], cols: [0, 16], by: turns");
}

// 17 entries of 65,536 ranks: a few hundred bytes, a million shards.
TEST(PlanText, OfMoreShardsThanAnyPlanHasIsRefused) {
  std::string text = kHead;
  for (int i = 0; i < 17; ++i) {
    text += "      - {rank: 0, rows: [0, 100000], cols: [0, 16], count: 65536}\n";
  }
  try {
    plan_from_yaml(text, "plan.yaml");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("tables.a: 1114112 shards"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace weft::spec
