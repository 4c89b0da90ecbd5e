// Caches divided by access curves, against all divisions there are.
#include "weft/planner/cache_division.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "weft/base/error.h"
#include "weft/planner/place.h"
#include "weft/planner/tier_use.h"
#include "weft/rowfile/layout.h"
#include "weft/spec/yaml.h"

namespace weft::planner {
namespace {

using testing::make_config;
using testing::Use;
using Stretches = std::vector<CacheStretch>;

/// Blocks that a cache of so many bytes saves, by its stretches.
double saved_by(const Stretches& stretches, std::int64_t bytes) {
  double saved = 0.0;
  for (const CacheStretch& one : stretches) {
    const std::int64_t taken = std::min(bytes, one.bytes);
    saved += one.saved * static_cast<double>(taken) / static_cast<double>(one.bytes);
    bytes -= taken;
  }
  return saved;
}

double saved_by(const std::vector<Stretches>& caches, const std::vector<std::int64_t>& bytes) {
  double saved = 0.0;
  for (std::size_t i = 0; i < caches.size(); ++i) {
    saved += saved_by(caches[i], bytes[i]);
  }
  return saved;
}

/// The most that any division of `bytes` over the caches from `first` on saves.
double most_saved(const std::vector<Stretches>& caches, std::size_t first, std::int64_t bytes) {
  if (first + 1 == caches.size()) {
    return saved_by(caches[first], bytes);
  }
  double most = 0.0;
  for (std::int64_t own = 0; own <= bytes; ++own) {
    most =
        std::max(most, saved_by(caches[first], own) + most_saved(caches, first + 1, bytes - own));
  }
  return most;
}

std::vector<std::int64_t> divided(const std::vector<Stretches>& caches, std::int64_t bytes) {
  return divide_bytes(bytes,
                      std::vector<std::span<const CacheStretch>>(caches.begin(), caches.end()));
}

/// Random points made into stretches, for up to four caches and 16 bytes.
TEST(DivideBytes, SavesAsMuchAsTheBestOfAllDivisions) {
  std::mt19937 random(7);
  const auto below = [&](int end) { return static_cast<std::int64_t>(random() % unsigned(end)); };
  int beaten = 0;  // equal shares
  for (int round = 0; round < 300; ++round) {
    std::vector<Stretches> caches(static_cast<std::size_t>(1 + below(4)));
    for (Stretches& stretches : caches) {
      std::vector<CachePoint> points = {{.bytes = 0, .blocks = 100.0}};
      for (std::int64_t i = below(6); i > 0; --i) {
        points.push_back({.bytes = points.back().bytes + 1 + below(4),
                          .blocks = points.back().blocks - static_cast<double>(below(12))});
      }
      stretches = stretches_of(points);
    }
    const std::int64_t bytes = below(17);
    const std::vector<std::int64_t> got = divided(caches, bytes);
    EXPECT_LE(std::accumulate(got.begin(), got.end(), std::int64_t{0}), bytes);
    const double most = most_saved(caches, 0, bytes);
    EXPECT_NEAR(saved_by(caches, got), most, 1e-9);
    const std::vector<std::int64_t> equal(caches.size(),
                                          bytes / static_cast<std::int64_t>(caches.size()));
    beaten += saved_by(caches, equal) < most - 0.5 ? 1 : 0;
  }
  EXPECT_GT(beaten, 100) << "any division would pass";
}

TEST(DivideBytes, TakesEqualStretchesInTheirOrder) {
  const Stretches one = {{.bytes = 4, .saved = 8.0}, {.bytes = 4, .saved = 1.0}};
  EXPECT_EQ(divided({one, one, one}, 10), (std::vector<std::int64_t>{4, 4, 2}));
  EXPECT_EQ(divided({one, {}, one}, 100), (std::vector<std::int64_t>{8, 0, 8}));
  EXPECT_EQ(divided({{}, {}}, 100), (std::vector<std::int64_t>{0, 0}));
}

/// From 10 blocks to 9, 4 and 4: the first stretch alone would hide what lies behind it.
TEST(Stretches, AreThoseOfTheConvexHull) {
  const std::vector<CachePoint> points = {{.bytes = 10, .blocks = 10.0},
                                          {.bytes = 20, .blocks = 9.0},
                                          {.bytes = 30, .blocks = 4.0},
                                          {.bytes = 40, .blocks = 4.0},
                                          {.bytes = 50, .blocks = 2.0}};
  const Stretches got = stretches_of(points);
  ASSERT_EQ(got.size(), 2U);
  EXPECT_EQ(got[0].bytes, 20);
  EXPECT_DOUBLE_EQ(got[0].saved, 6.0);
  EXPECT_EQ(got[1].bytes, 20);
  EXPECT_DOUBLE_EQ(got[1].saved, 2.0);
  EXPECT_TRUE(stretches_of({points.data(), 1}).empty());
  EXPECT_TRUE(stretches_of({}).empty());
}

struct Popular {
  Use use;
  double zipf = 1.05;
};

/// Tables on disks that share `bytes` of each rank.
spec::Config on_shared_caches(const std::vector<Popular>& tables, std::int64_t bytes) {
  std::vector<Use> uses;
  for (const Popular& one : tables) {
    uses.push_back(one.use);
  }
  spec::Config config = make_config(uses, 1024);
  for (std::size_t t = 0; t < tables.size(); ++t) {
    config.data.synthetic.columns[t].zipf = tables[t].zipf;
    config.tables[t].memory.tier = spec::MemoryTier::kSsd;
    config.tables[t].sharding = spec::Sharding::kRowWise;
  }
  config.tiers.directories = {"/nowhere"};
  config.tiers.cache_bytes = bytes;
  config.train.steps = 100'000;
  return config;
}

spec::Plan divided_plan(const spec::Config& config, std::int64_t ranks) {
  spec::Plan plan = make_plan(config, ranks);
  const Workload workload = make_workload(config);
  EXPECT_TRUE(divides_by_curves(config, workload, plan));
  divide_caches(config, workload, HotUses(config, workload), plan);
  check_plan(plan, config);
  return plan;
}

/// Each missed row by itself.
double blocks_of(const spec::Config& config, const spec::Plan& plan) {
  const Workload workload = make_workload(config);
  double blocks = 0.0;
  for (const ShardTier& tier : shard_tiers(config, workload, plan, HotUses(config, workload))) {
    blocks += tier.missed * static_cast<double>(rowfile::blocks_per_group(tier.row_bytes));
  }
  return blocks;
}

const std::vector<Popular> kMixed = {{.use = {.rows = 400'000, .dim = 32}, .zipf = 1.2},
                                     {.use = {.rows = 100'000, .dim = 64}, .zipf = 0.8},
                                     {.use = {.rows = 1'000'000, .dim = 16}, .zipf = 0.0}};

/// All divisions of what the floors leave, by 64ths.
TEST(CacheDivision, ReadsFewestBlocksOfAllDivisions) {
  for (const std::int64_t mib : {4, 12, 40}) {
    SCOPED_TRACE(mib);
    const spec::Config config = on_shared_caches(kMixed, mib << 20);
    spec::Plan plan = divided_plan(config, 1);
    const double got = blocks_of(config, plan);
    std::vector<std::int64_t> floors;
    const Workload workload = make_workload(config);
    for (const ShardTier& tier : shard_tiers(config, workload, plan, HotUses(config, workload))) {
      floors.push_back(tier.fewest_bytes);
    }
    const std::int64_t left = config.tiers.cache_bytes - floors[0] - floors[1] - floors[2];
    double best = 1e30;
    double worst = 0.0;
    for (std::int64_t a = 0; a <= 64; ++a) {
      for (std::int64_t b = 0; a + b <= 64; ++b) {
        plan.tables[0].caches[0] = floors[0] + left * a / 64;
        plan.tables[1].caches[0] = floors[1] + left * b / 64;
        plan.tables[2].caches[0] = floors[2] + left * (64 - a - b) / 64;
        const double blocks = blocks_of(config, plan);
        best = std::min(best, blocks);
        worst = std::max(worst, blocks);
      }
    }
    EXPECT_LT(got, 1.01 * best);
    EXPECT_GT(worst, 1.2 * best) << "any division would pass";
    spec::drop_caches(plan);
    EXPECT_LT(got, blocks_of(config, plan)) << "no better than by bytes";
  }
}

/// What a rank has is what its shards have, and they train.
TEST(CacheDivision, LeavesEveryShardWhatItTrainsWith) {
  const spec::Config config = on_shared_caches(kMixed, 6 << 20);
  const spec::Plan plan = divided_plan(config, 3);
  const Workload workload = make_workload(config);
  std::vector<std::int64_t> ranks(3);
  for (const ShardTier& tier : shard_tiers(config, workload, plan, HotUses(config, workload))) {
    EXPECT_GE(tier.cache.slots(), tier.fewest_slots) << tier.table;
    ranks[static_cast<std::size_t>(tier.rank)] += tier.given_bytes;
  }
  for (const std::int64_t bytes : ranks) {
    EXPECT_LE(bytes, config.tiers.cache_bytes);
    EXPECT_GT(bytes, config.tiers.cache_bytes - 8);  // rounded down
  }
  for (const spec::TablePlan& table : plan.tables) {
    for (const std::int64_t bytes : table.caches) {
      EXPECT_NEAR(static_cast<double>(bytes), static_cast<double>(table.caches[0]),
                  0.01 * static_cast<double>(table.caches[0]));  // cuts differ by a row
    }
  }
}

/// A small table with long bags takes all rows of its own; by bytes it would lack them.
TEST(CacheDivision, OfLittleMemoryEveryShardHasAsMuchOfItsNeed) {
  const std::vector<Popular> tables = {
      {.use = {.rows = 3'000, .dim = 16, .length = 8}, .zipf = 0.0},
      {.use = {.rows = 900'000, .dim = 16}, .zipf = 0.0}};
  spec::Config config = on_shared_caches(tables, 1 << 20);
  const Workload workload = make_workload(config);
  const auto tiers = [&](const spec::Plan& plan) {
    return shard_tiers(config, workload, plan, HotUses(config, workload));
  };
  const std::vector<ShardTier> by_bytes = tiers(make_plan(config, 1));
  EXPECT_LT(by_bytes[0].cache.slots(), by_bytes[0].fewest_slots);
  for (const ShardTier& tier : tiers(divided_plan(config, 1))) {
    EXPECT_GE(tier.cache.slots(), tier.fewest_slots);
  }
  config.tiers.cache_bytes = (by_bytes[0].fewest_bytes + by_bytes[1].fewest_bytes) / 2;
  for (const ShardTier& tier : tiers(divided_plan(config, 1))) {
    EXPECT_NEAR(static_cast<double>(tier.given_bytes), 0.5 * static_cast<double>(tier.fewest_bytes),
                1.0);
  }
}

/// More memory than all rows take stays free.
TEST(CacheDivision, GivesNoMoreThanAllRows) {
  const spec::Config config = on_shared_caches(kMixed, std::int64_t{1} << 40);
  const spec::Plan plan = divided_plan(config, 1);
  const Workload workload = make_workload(config);
  for (const ShardTier& tier : shard_tiers(config, workload, plan, HotUses(config, workload))) {
    EXPECT_EQ(tier.missed, 0.0);
    EXPECT_GE(tier.cache.slots(), tier.rows);
    EXPECT_LE(tier.cache.slots(), tier.rows + 1);
  }
}

TEST(CacheDivision, IsByCurvesWhereTheyAreKnown) {
  spec::Config config = on_shared_caches(kMixed, 4 << 20);
  const spec::Plan plan = make_plan(config, 2);
  Workload workload = make_workload(config);
  EXPECT_TRUE(divides_by_curves(config, workload, plan)) << "of the generator";
  config.tiers.division = spec::CacheDivision::kBytes;
  EXPECT_FALSE(divides_by_curves(config, workload, plan));
  config.tiers.division = spec::CacheDivision::kAuto;
  config.data.format = spec::DataFormat::kCriteo;
  EXPECT_FALSE(divides_by_curves(config, workload, plan)) << "a guess";
  config.tiers.division = spec::CacheDivision::kCurves;
  EXPECT_TRUE(divides_by_curves(config, workload, plan));
  config.tiers.division = spec::CacheDivision::kAuto;
  for (FeatureUse& use : workload.features) {
    EXPECT_FALSE(divides_by_curves(config, workload, plan));
    use.measured = true;
  }
  EXPECT_TRUE(divides_by_curves(config, workload, plan));
  for (spec::Table& table : config.tables) {
    table.memory.cache_bytes = 1 << 20;
  }
  EXPECT_FALSE(divides_by_curves(config, workload, plan)) << "by hand";
}

TEST(CacheDivision, IsNotBetweenTablesOfDifferentGroups) {
  spec::Config config = on_shared_caches(kMixed, 4 << 20);
  config.mesh.groups = 2;
  config.tables[1].groups = 1;
  const spec::Plan plan = make_plan(config, 4);
  EXPECT_FALSE(divides_by_curves(config, make_workload(config), plan));
  config.tables[1].groups = 0;
  EXPECT_TRUE(divides_by_curves(config, make_workload(config), make_plan(config, 4)));
}

std::string refusal(const spec::Plan& plan, const spec::Config& config) {
  try {
    check_plan(plan, config);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(CacheDivision, ThatDoesNotFitIsRefused) {
  const spec::Config config = on_shared_caches(kMixed, 4 << 20);
  const spec::Plan plan = divided_plan(config, 2);
  EXPECT_EQ(refusal(spec::plan_from_yaml(spec::plan_to_yaml(plan), "plan.yaml"), config),
            "no error");
  spec::Config other = config;
  other.tiers.cache_bytes = 1 << 20;
  EXPECT_NE(refusal(plan, other).find("the plan's caches of rank 0 take 419430"), std::string::npos)
      << refusal(plan, other);
  EXPECT_NE(refusal(plan, other).find("tiers.cache_bytes is 1048576"), std::string::npos);
  other = config;
  other.tiers.division = spec::CacheDivision::kBytes;
  EXPECT_EQ(refusal(plan, other),
            "tiers.division is bytes in the configuration and the plan has caches of its own; set "
            "auto, or make a new plan");
  other = config;
  other.tables[1].memory.cache_bytes = 1 << 20;
  EXPECT_EQ(refusal(plan, other),
            "the plan of table t1: it has caches, and the configuration a cache_bytes of the "
            "table's own, 1048576; make a new plan for this configuration");
  other = config;
  other.tables[1].memory.tier = spec::MemoryTier::kLazy;
  EXPECT_EQ(refusal(plan, other),
            "the plan of table t1: it has caches, and the configuration memory.tier lazy; make a "
            "new plan for this configuration");
  spec::Plan wrong = plan;
  wrong.tables[2].caches.pop_back();
  EXPECT_NE(refusal(wrong, config).find("table t2: it has 1 caches for 2 shards"),
            std::string::npos)
      << refusal(wrong, config);
  wrong = plan;
  wrong.tables[0].caches.clear();
  EXPECT_NE(refusal(wrong, config).find("table t0: it has 0 caches for 2 shards"),
            std::string::npos);
  wrong = plan;
  wrong.tables[0].caches[1] = 0;
  EXPECT_NE(refusal(wrong, config).find("a cache of 0 bytes"), std::string::npos);
  wrong.tables[0].caches[1] = std::int64_t{1} << 50;
  EXPECT_NE(refusal(wrong, config).find("the plan's caches of rank 1"), std::string::npos);
}

}  // namespace
}  // namespace weft::planner
