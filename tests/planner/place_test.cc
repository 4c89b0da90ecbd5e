#include "weft/planner/place.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft::planner {
namespace {

using spec::Plan;
using spec::Shard;
using spec::Sharding;

spec::Table table(const std::string& name, std::int64_t rows, std::int64_t dim) {
  spec::Table out;
  out.name = name;
  out.num_embeddings = rows;
  out.embedding_dim = dim;
  return out;
}

/// One feature per table, of the same name.
spec::Config config_of(const std::vector<spec::Table>& tables) {
  spec::Config config;
  config.tables = tables;
  for (const spec::Table& t : tables) {
    spec::SparseFeature feature;
    feature.name = t.name;
    config.sparse_features.push_back(feature);
  }
  return config;
}

std::string error_of_placing(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "no error";
}

std::vector<std::int64_t> owners(const Plan& plan) {
  std::vector<std::int64_t> out;
  for (const spec::TablePlan& t : plan.tables) {
    out.push_back(t.shards[0].rank);
  }
  return out;
}

TEST(MakePlan, CoversEveryShapeOnEveryNumberOfRanks) {
  for (const Sharding sharding :
       {Sharding::kAuto, Sharding::kDataParallel, Sharding::kTableWise, Sharding::kRowWise,
        Sharding::kColumnWise, Sharding::kTableRowWise, Sharding::kTableColumnWise,
        Sharding::kGridShard}) {
    for (const std::int64_t rows : {1, 2, 7, 1000}) {
      for (const std::int64_t dim : {1, 15, 16, 17, 64, 130}) {
        spec::Table one = table("t", rows, dim);
        one.sharding = sharding;
        const spec::Config config = config_of({one, table("u", 100, 16)});
        for (const std::int64_t ranks : {1, 2, 3, 4, 5, 8, 31}) {
          for (const std::int64_t per_host : {1, 2, 3, 31}) {
            RankLayout target{.ranks = ranks};
            for (std::int64_t r = 0; r < ranks; ++r) {
              target.hosts.push_back(r / per_host);
            }
            const Plan plan = make_plan(config, target);
            EXPECT_NO_THROW(check_plan(plan, config); check_pins(plan, config))
                << "rows " << rows << " dim " << dim << " ranks " << ranks << " of " << per_host;
            EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(plan), "plan"), plan);
            EXPECT_EQ(make_plan(config, target), plan);
          }
        }
      }
    }
  }
}

TEST(MakePlan, LargestFirstOnTheLeastLoaded) {
  // Tables share 30 rows, and have a fifth of the lookups each, so they weigh 14, 13, 12, 11
  // and 10. 14 -> rank 0, 13 -> rank 1, 12 -> rank 1 (13 < 14), 11 -> rank 0, 10 -> 0 or 1: 25
  // each, the lower.
  const spec::Config config = config_of({table("a", 4, 16), table("b", 8, 16), table("c", 6, 16),
                                         table("d", 7, 16), table("e", 5, 16)});
  EXPECT_EQ(owners(make_plan(config, 2)), (std::vector<std::int64_t>{0, 0, 1, 1, 0}));
}

/// Where bytes alone are dealt out, the rank with fewer of them gets every small table.
TEST(MakePlan, SmallTablesAreDealtByTheirLookups) {
  const spec::Config config =
      config_of({table("a", 2, 16), table("b", 1000, 16), table("c", 2, 16), table("d", 800, 16),
                 table("e", 2, 16), table("f", 2, 16), table("g", 2, 16), table("h", 2, 16)});
  EXPECT_EQ(owners(make_plan(config, 2)), (std::vector<std::int64_t>{1, 0, 0, 1, 1, 0, 1, 0}));
}

/// A rank's share of all rows and its share of the lookups are at most 2 / W and what the heaviest
/// table has of both.
TEST(MakePlan, NoRankHasMuchMoreThanTwiceTheMeanOfRowsOrLookups) {
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    std::mt19937_64 random(seed);
    std::vector<spec::Table> tables;
    std::int64_t all_rows = 0;
    for (std::int64_t t = 0; t < 40; ++t) {
      const auto exponent = static_cast<int>(random() % 20);
      tables.push_back(table(fmt::format("t{}", t), std::int64_t{1} << exponent, 16));
      all_rows += tables.back().num_embeddings;
    }
    const spec::Config config = config_of(tables);
    const auto count = static_cast<double>(tables.size());
    const auto share = [all_rows](std::int64_t rows) {
      return static_cast<double>(rows) / static_cast<double>(all_rows);
    };
    for (const std::int64_t ranks : {2, 5, 8}) {
      std::vector<std::int64_t> rows(static_cast<std::size_t>(ranks), 0);
      std::vector<std::int64_t> lookups(static_cast<std::size_t>(ranks), 0);
      double heaviest = 0.0;
      const std::vector<std::int64_t> placed = owners(make_plan(config, ranks));
      for (std::size_t t = 0; t < tables.size(); ++t) {
        rows[static_cast<std::size_t>(placed[t])] += tables[t].num_embeddings;
        ++lookups[static_cast<std::size_t>(placed[t])];
        heaviest = std::max(heaviest, share(tables[t].num_embeddings) + 1.0 / count);
      }
      const double most = 2.0 / static_cast<double>(ranks) + heaviest + 1e-9;
      for (std::size_t r = 0; r < rows.size(); ++r) {
        const double load = share(rows[r]) + static_cast<double>(lookups[r]) / count;
        EXPECT_LE(load, most) << "rank " << r << " of " << ranks << ", seed " << seed;
      }
    }
  }
}

TEST(MakePlan, TiesGoToTheLowerTableAndRank) {
  const spec::Config config =
      config_of({table("a", 5, 16), table("b", 5, 16), table("c", 5, 16), table("d", 5, 16)});
  EXPECT_EQ(owners(make_plan(config, 3)), (std::vector<std::int64_t>{0, 1, 2, 0}));
}

TEST(MakePlan, LookupsAndBytesWeigh) {
  spec::Config config = config_of({table("half", 10, 16), table("busy", 6, 16), table("c", 9, 16)});
  // Twentieths of the bytes held and sevenths of those read: "half" 5 and 1, "busy" 6 and 4, "c" 9
  // and 2.
  config.tables[0].dtype = spec::RowDType::kBf16;
  config.data.synthetic.columns = {{.name = "busy", .min_length = 1, .max_length = 3}};
  EXPECT_EQ(owners(make_plan(config, 2)), (std::vector<std::int64_t>{1, 0, 1}));
}

TEST(MakePlan, BothHalvesOfARowWeigh) {
  spec::Config config = config_of({table("halves", 10, 16), table("b", 9, 16), table("c", 2, 16)});
  config.tables[0].dtype = spec::RowDType::kSplitBf16;  // as fp32
  EXPECT_EQ(owners(make_plan(config, 2)), (std::vector<std::int64_t>{0, 1, 1}));
  config.tables[0].dtype = spec::RowDType::kFp16;
  EXPECT_EQ(owners(make_plan(config, 2)), (std::vector<std::int64_t>{1, 0, 1}));
}

TEST(MakePlan, PinnedTablesCountBeforeTheOthers) {
  spec::Config config = config_of({table("a", 5, 16), table("big", 100, 16), table("b", 4, 16)});
  config.tables[1].rank = 0;
  EXPECT_EQ(owners(make_plan(config, 2)), (std::vector<std::int64_t>{1, 0, 1}));
}

TEST(MakePlan, RowsFewerThanRanks) {
  spec::Config config = config_of({table("a", 2, 16)});
  config.tables[0].sharding = Sharding::kRowWise;
  const Plan plan = make_plan(config, 5);
  ASSERT_EQ(plan.tables[0].shards.size(), 2U);
  EXPECT_EQ(plan.tables[0].shards[0], (Shard{.rank = 2, .rows = {0, 1}, .cols = {0, 16}}));
  EXPECT_EQ(plan.tables[0].shards[1], (Shard{.rank = 4, .rows = {1, 2}, .cols = {0, 16}}));
}

TEST(MakePlan, ColumnsAreCutAtBlocksOf16) {
  spec::Config config = config_of({table("a", 10, 130)});
  config.tables[0].sharding = Sharding::kColumnWise;
  const auto cuts = [&](std::int64_t ranks) {
    std::vector<Range> out;
    const Plan plan = make_plan(config, ranks);
    for (const Shard& shard : plan.tables[0].shards) {
      out.push_back(shard.cols);
    }
    return out;
  };
  EXPECT_EQ(cuts(2), (std::vector<Range>{{0, 64}, {64, 130}}));
  EXPECT_EQ(cuts(4), (std::vector<Range>{{0, 32}, {32, 64}, {64, 96}, {96, 130}}));
  EXPECT_EQ(cuts(20).size(), 9U);
  EXPECT_EQ(cuts(20).back(), (Range{128, 130}));
  config.tables[0].embedding_dim = 17;
  EXPECT_EQ(cuts(3), (std::vector<Range>{{0, 16}, {16, 17}}));
  config.tables[0].embedding_dim = 1;
  EXPECT_EQ(cuts(3), (std::vector<Range>{{0, 1}}));
}

TEST(MakePlan, NoGroupOfACodecLiesInTwoShards) {
  spec::Config config = config_of({table("t", 10, 200)});
  config.tables[0].sharding = Sharding::kColumnWise;
  const Plan plain = make_plan(config, 8);
  ASSERT_EQ(plain.tables[0].shards.size(), 8U);
  config.codecs = {.forward = CodecFormat::kInt8, .group_size = 24};
  const Plan plan = make_plan(config, 8);
  ASSERT_EQ(plan.tables[0].shards.size(), 5U);
  for (const Shard& shard : plan.tables[0].shards) {
    EXPECT_EQ(shard.cols.begin % 48, 0);
  }
  check_plan(plan, config);
  EXPECT_EQ(error_of_placing([&] { check_plan(plain, config); }),
            "the plan of table t: columns [0, 16) are not cut at multiples of 48, of 16 and of "
            "codecs.group_size; make a new plan for this configuration");
  config.codecs.forward = CodecFormat::kBf16;
  EXPECT_EQ(make_plan(config, 8).tables[0].shards, plain.tables[0].shards);
}

TEST(MakePlan, ColumnShardsGoToDifferentRanks) {
  spec::Config config = config_of({table("a", 10, 64), table("b", 1000, 16)});
  config.tables[0].sharding = Sharding::kColumnWise;
  config.tables[0].column_shards = 3;
  const Plan plan = make_plan(config, 4);
  // b, the larger, is on rank 0.
  ASSERT_EQ(plan.tables[0].shards.size(), 3U);
  for (std::int64_t i = 0; i < 3; ++i) {
    EXPECT_EQ(plan.tables[0].shards[static_cast<std::size_t>(i)].rank, i + 1);
  }
  const spec::Shards two = make_plan(config, 2).tables[0].shards;  // fewer ranks than shards
  ASSERT_EQ(two.size(), 2U);
  EXPECT_NE(two[0].rank, two[1].rank);
}

/// Blocks as "rank: rows x columns".
std::vector<std::string> blocks_of(const Plan& plan) {
  std::vector<std::string> out;
  for (const Shard& shard : plan.tables[0].shards) {
    out.push_back(fmt::format("{}: {}-{} x {}-{}", shard.rank, shard.rows.begin, shard.rows.end,
                              shard.cols.begin, shard.cols.end));
  }
  return out;
}

TEST(MakePlan, CollectivesAreHierarchicalWhereAskedAndHostsHaveSeveralRanks) {
  spec::Config config = config_of({table("a", 10, 16)});
  const spec::CollectiveForms flat;
  EXPECT_EQ(make_plan(config, {.ranks = 3, .hosts = {0, 0, 1}}).collectives, flat);
  config.collectives = spec::Collectives::kHierarchical;
  const spec::CollectiveForms forms =
      make_plan(config, {.ranks = 3, .hosts = {0, 0, 1}}).collectives;
  EXPECT_EQ(forms.ids, spec::CollectiveForm::kHierarchical);
  EXPECT_EQ(forms.vectors, spec::CollectiveForm::kHierarchical);
  EXPECT_EQ(forms.dense, spec::CollectiveForm::kHierarchical);
  EXPECT_EQ(make_plan(config, {.ranks = 3, .hosts = {0, 1, 2}}).collectives, flat);
  EXPECT_EQ(make_plan(config, 3).collectives, flat);
}

TEST(MakePlan, CollectivesOfMoreThan64RanksAreHierarchicalUnlessFlatIsAskedFor) {
  spec::Config config = config_of({table("a", 10, 16)});
  const spec::CollectiveForms flat;
  const auto forms = [&](std::int64_t ranks, std::int64_t of_a_host) {
    RankLayout layout{.ranks = ranks};
    for (std::int64_t r = 0; r < ranks; ++r) {
      layout.hosts.push_back(r / of_a_host);
    }
    return make_plan(config, layout).collectives;
  };
  EXPECT_EQ(forms(64, 8), flat);
  EXPECT_EQ(forms(65, 8).ids, spec::CollectiveForm::kHierarchical);
  EXPECT_EQ(forms(65, 8).vectors, spec::CollectiveForm::kHierarchical);
  EXPECT_EQ(forms(65, 8).dense, spec::CollectiveForm::kHierarchical);
  EXPECT_EQ(forms(65 * 8, 8).dense, spec::CollectiveForm::kHierarchical) << "64 other hosts";
  EXPECT_EQ(forms(65 * 8 + 1, 8).dense, spec::CollectiveForm::kRelayed)
      << "a host of one rank, which would act for all others";
  EXPECT_EQ(forms(66 * 8, 8).dense, spec::CollectiveForm::kRelayed);
  EXPECT_EQ(forms(66 * 8, 8).vectors, spec::CollectiveForm::kHierarchical);
  EXPECT_EQ(forms(65, 1), flat) << "one rank on each host";
  EXPECT_EQ(forms(65, 65), flat) << "one host";
  config.collectives = spec::Collectives::kFlat;
  EXPECT_EQ(forms(65, 8), flat);
}

using Blocks = std::vector<std::string>;

TEST(MakePlan, HostsAreNumberedByTheirFirstRanks) {
  const spec::Config config = config_of({table("a", 10, 16)});
  EXPECT_EQ(make_plan(config, {.ranks = 4, .hosts = {7, 3, 7, 3}}).hosts,
            (std::vector<std::int64_t>{0, 1, 0, 1}));
  EXPECT_EQ(make_plan(config, {.ranks = 2, .hosts = {5, 5}}), make_plan(config, 2));
  EXPECT_NE(spec::plan_hash(make_plan(config, {.ranks = 2, .hosts = {0, 1}})),
            spec::plan_hash(make_plan(config, 2)));
}

TEST(MakePlan, RowsAndColumnsOverTheRanksOfOneHost) {
  spec::Config config = config_of({table("a", 10, 40), table("b", 1000, 16)});
  const RankLayout target{.ranks = 5, .hosts = {0, 0, 0, 1, 1}};
  config.tables[0].sharding = Sharding::kTableRowWise;  // after b, which is on rank 0
  EXPECT_EQ(blocks_of(make_plan(config, target)), (Blocks{"3: 0-5 x 0-40", "4: 5-10 x 0-40"}));
  config.tables[0].host = 0;
  EXPECT_EQ(blocks_of(make_plan(config, target)),
            (Blocks{"0: 0-3 x 0-40", "1: 3-6 x 0-40", "2: 6-10 x 0-40"}));
  config.tables[0].sharding = Sharding::kTableColumnWise;
  EXPECT_EQ(blocks_of(make_plan(config, target)),
            (Blocks{"1: 0-10 x 0-16", "2: 0-10 x 16-32", "0: 0-10 x 32-40"}));
  config.tables[0].column_shards = 2;
  EXPECT_EQ(blocks_of(make_plan(config, target)), (Blocks{"1: 0-10 x 0-16", "2: 0-10 x 16-40"}));
  config.tables[0].host = -1;
  config.tables[0].column_shards = 0;
  EXPECT_EQ(blocks_of(make_plan(config, target)), (Blocks{"3: 0-10 x 0-16", "4: 0-10 x 16-40"}));
  config.tables[0].sharding = Sharding::kTableWise;
  config.tables[0].host = 0;
  EXPECT_EQ(blocks_of(make_plan(config, target)), (Blocks{"1: 0-10 x 0-40"}));
}

TEST(MakePlan, GridsAreColumnsOverHostsAndRowsOverTheirRanks) {
  spec::Config config = config_of({table("a", 10, 40)});
  config.tables[0].sharding = Sharding::kGridShard;
  const RankLayout even{.ranks = 4, .hosts = {0, 0, 1, 1}};
  EXPECT_EQ(blocks_of(make_plan(config, even)),
            (Blocks{"0: 0-5 x 0-16", "2: 0-5 x 16-40", "1: 5-10 x 0-16", "3: 5-10 x 16-40"}));
  // The second host suffices for two cuts of rows, so the first makes no third.
  const RankLayout uneven{.ranks = 5, .hosts = {0, 0, 0, 1, 1}};
  EXPECT_EQ(blocks_of(make_plan(config, uneven)),
            (Blocks{"0: 0-5 x 0-16", "3: 0-5 x 16-40", "1: 5-10 x 0-16", "4: 5-10 x 16-40"}));
  config.tables[0].column_shards = 1;
  EXPECT_EQ(blocks_of(make_plan(config, uneven)),
            (Blocks{"0: 0-3 x 0-40", "1: 3-6 x 0-40", "2: 6-10 x 0-40"}));
  config.tables[0].column_shards = 3;  // the first host has two of them
  EXPECT_EQ(blocks_of(make_plan(config, even)),
            (Blocks{"0: 0-10 x 0-16", "2: 0-10 x 16-32", "1: 0-10 x 32-40"}));
  config.tables[0].column_shards = 2;  // both on the one host
  EXPECT_EQ(blocks_of(make_plan(config, 4)),
            (Blocks{"0: 0-5 x 0-16", "2: 0-5 x 16-40", "1: 5-10 x 0-16", "3: 5-10 x 16-40"}));
  config.tables[0].embedding_dim = 16;
  EXPECT_EQ(blocks_of(make_plan(config, even)), (Blocks{"0: 0-5 x 0-16", "1: 5-10 x 0-16"}));
  config.tables[0].num_embeddings = 1;
  EXPECT_EQ(blocks_of(make_plan(config, even)), (Blocks{"0: 0-1 x 0-16"}));
}

TEST(MakePlan, EveryNthRow) {
  spec::Config config = config_of({table("a", 10, 16)});
  config.tables[0].sharding = Sharding::kRowWise;
  config.tables[0].row_split = spec::RowSplit::kModulo;
  const auto rows = [&](std::int64_t ranks) {
    std::vector<RowSet> out;
    const Plan plan = make_plan(config, ranks);
    check_plan(plan, config);
    EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(plan), "plan"), plan);
    for (const Shard& shard : plan.tables[0].shards) {
      EXPECT_EQ(shard.rank, static_cast<std::int64_t>(out.size()));
      out.push_back(shard.rows);
    }
    return out;
  };
  EXPECT_EQ(rows(3), (std::vector<RowSet>{{0, 10, 3}, {1, 10, 3}, {2, 10, 3}}));
  EXPECT_EQ(rows(1), (std::vector<RowSet>{{0, 10}}));
  config.tables[0].num_embeddings = 2;
  EXPECT_EQ(rows(3), (std::vector<RowSet>{{0, 2, 2}, {1, 2, 2}}));
  config.tables[0].num_embeddings = 10;
  config.tables[0].sharding = Sharding::kGridShard;
  config.tables[0].embedding_dim = 32;
  const Plan grid = make_plan(config, {.ranks = 4, .hosts = {0, 0, 1, 1}});
  check_plan(grid, config);
  EXPECT_EQ(grid.tables[0].shards[2].rows, RowSet(1, 10, 2));
  EXPECT_EQ(grid.tables[0].shards[3].rows, RowSet(1, 10, 2));
}

TEST(CheckPlan, BagsAreAddedAtTheSampleWhereRowsAreCut) {
  spec::Config config = config_of({table("a", 10, 16)});
  config.tables[0].pooled_at = spec::PooledAt::kSample;
  for (const Sharding sharding :
       {Sharding::kRowWise, Sharding::kTableRowWise, Sharding::kGridShard}) {
    config.tables[0].sharding = sharding;
    const Plan plan = make_plan(config, 2);
    EXPECT_EQ(plan.tables[0].pooled_at, spec::PooledAt::kSample);
    check_plan(plan, config);
  }
  config.tables[0].sharding = Sharding::kTableWise;
  EXPECT_EQ(error_of_placing([&] { check_plan(make_plan(config, 2), config); }),
            "the plan of table a: pooled_at: sample is for tables whose rows are cut, or that have "
            "hot rows; make a new plan for this configuration");
  Plan hot = make_plan(config, 2);
  hot.tables[0].hot = {{0, 3}};
  check_plan(hot, config);
}

TEST(CheckPlan, HotRowsAscend) {
  spec::Config config = config_of({table("a", 10, 16)});
  const auto error = [&](const std::vector<Range>& hot) {
    Plan plan = make_plan(config, 2);
    plan.tables[0].hot = hot;
    return error_of_placing([&] { check_plan(plan, config); });
  };
  const std::string of = "the plan of table a: ";
  const std::string advice = "; make a new plan for this configuration";
  EXPECT_EQ(error({{0, 3}, {4, 10}}), "no error");
  for (const std::vector<Range>& bad :
       {std::vector<Range>{{4, 11}}, std::vector<Range>{{4, 4}}, std::vector<Range>{{-1, 4}}}) {
    EXPECT_EQ(error(bad), fmt::format("{}hot rows [{}, {}) are none, or outside [0, 10){}", of,
                                      bad[0].begin, bad[0].end, advice));
  }
  for (const std::vector<Range>& bad :
       {std::vector<Range>{{5, 6}, {2, 3}}, std::vector<Range>{{1, 3}, {2, 3}},
        std::vector<Range>{{0, 2}, {2, 3}}}) {
    EXPECT_EQ(error(bad),
              of + "hot rows [2, 3) touch or precede those before; hot rows ascend" + advice);
  }
  config.tables[0].sharding = Sharding::kDataParallel;
  EXPECT_EQ(error({{0, 3}}),
            of + "data_parallel has all rows on every rank, and hot rows besides" + advice);
}

TEST(MakePlan, OnlyCopiesWhereNothingElseIsAllowed) {
  spec::Config config = config_of({table("a", 10, 16), table("b", 10, 16)});
  config.tables[0].allow = {"data_parallel"};
  config.tables[1].allow = {"data_parallel", "row_wise"};
  const Plan plan = make_plan(config, 3);
  EXPECT_EQ(plan.tables[0].sharding, Sharding::kDataParallel);
  EXPECT_EQ(plan.tables[0].shards.size(), 3U);
  EXPECT_EQ(plan.tables[1].sharding, Sharding::kTableWise) << "may also stay whole";
  check_plan(plan, config);
  check_pins(plan, config);
}

/// The message about a plan that was made for `made` and is used for `used`.
std::string pinned(const std::function<void(spec::Table&)>& made,
                   const std::function<void(spec::Table&)>& used,
                   const RankLayout& target) {
  spec::Config config = config_of({table("a", 100, 64), table("b", 10, 16)});
  const spec::Config plain = config;
  made(config.tables[0]);
  const Plan plan = make_plan(config, target);
  config = plain;
  used(config.tables[0]);
  return error_of_placing([&] { check_pins(plan, config); });
}

TEST(CheckPins, WhatTheConfigurationPinsIsSo) {
  using spec::Table;
  const RankLayout four{.ranks = 4, .hosts = {0, 0, 1, 1}};
  const auto refused = [](const std::string& key, const std::string& rest) {
    return "tables.a." + key + " is " + rest + ", or make a new plan";
  };
  const auto as = [](Sharding sharding) { return [sharding](Table& t) { t.sharding = sharding; }; };
  const auto nothing = [](Table&) {};
  for (const Sharding made :
       {Sharding::kDataParallel, Sharding::kTableWise, Sharding::kRowWise, Sharding::kColumnWise,
        Sharding::kTableRowWise, Sharding::kTableColumnWise, Sharding::kGridShard}) {
    EXPECT_EQ(pinned(as(made), nothing, four), "no error") << "defaults pin nothing";
    for (const Sharding used : {Sharding::kTableWise, Sharding::kRowWise, Sharding::kGridShard}) {
      const std::string got(to_string(made));
      EXPECT_EQ(pinned(as(made), as(used), four),
                made == used ? "no error"
                             : refused("sharding", std::string(to_string(used)) +
                                                       " in the configuration and the plan has " +
                                                       got + "; set " + got + " or auto"));
    }
  }
  const std::string and_plan = " in the configuration and the plan has ";
  EXPECT_EQ(pinned(
                as(Sharding::kRowWise),
                [](Table& t) { t.allow = {"column_wise", "data_parallel"}; }, four),
            refused("allow", "[column_wise, data_parallel]" + and_plan +
                                 "row_wise; set row_wise among them"));
  EXPECT_EQ(
      pinned(as(Sharding::kRowWise), [](Table& t) { t.allow = {"row_wise"}; }, four), "no error");
  EXPECT_EQ(pinned(
                nothing, [](Table& t) { t.allow = {"row_wise"}; }, four),
            "no error")
      << "may stay whole";
  EXPECT_EQ(
      pinned(
          nothing, [](Table& t) { t.allow = {"data_parallel"}; }, four),
      refused("allow", "[data_parallel]" + and_plan + "table_wise; set table_wise among them"));
  EXPECT_EQ(pinned([](Table& t) { t.rank = 2; }, [](Table& t) { t.rank = 1; }, four),
            refused("rank", "1" + and_plan + "a shard on 2; set that or -1"));
  EXPECT_EQ(pinned([](Table& t) { t.rank = 2; }, [](Table& t) { t.host = 1; }, four), "no error");
  EXPECT_EQ(pinned([](Table& t) { t.rank = 2; }, [](Table& t) { t.host = 0; }, four),
            refused("host", "0" + and_plan + "a shard on rank 2 of host 1; set that or -1"));
  const auto dealt = [](Table& t) {
    t.sharding = Sharding::kRowWise;
    t.row_split = spec::RowSplit::kModulo;
  };
  EXPECT_EQ(pinned(dealt, dealt, four), "no error");
  EXPECT_EQ(pinned(dealt, as(Sharding::kRowWise), four), "no error") << "range is the default";
  EXPECT_EQ(pinned(as(Sharding::kRowWise), dealt, four),
            refused("row_split", "modulo" + and_plan + "ranges of rows; set range"));
  EXPECT_EQ(pinned(as(Sharding::kRowWise), dealt, {.ranks = 1}), "no error") << "one cut";
  const auto pooled = [](spec::PooledAt where) {
    return [where](Table& t) {
      t.sharding = Sharding::kRowWise;
      t.pooled_at = where;
    };
  };
  const auto owner = pooled(spec::PooledAt::kOwner);
  const auto sample = pooled(spec::PooledAt::kSample);
  EXPECT_EQ(pinned(sample, sample, four), "no error");
  EXPECT_EQ(pinned(sample, as(Sharding::kRowWise), four), "no error");
  EXPECT_EQ(pinned(sample, owner, four),
            refused("pooled_at", "owner" + and_plan + "sample; set sample or auto"));
  EXPECT_EQ(pinned(owner, sample, four),
            refused("pooled_at", "sample" + and_plan + "owner; set owner or auto"));
  EXPECT_EQ(pinned(
                nothing, [](Table& t) { t.pooled_at = spec::PooledAt::kSample; }, four),
            "no error")
      << "for where rows are cut";
  EXPECT_EQ(pinned(
                as(Sharding::kColumnWise),
                [](Table& t) {
                  t.sharding = Sharding::kColumnWise;
                  t.column_shards = 2;
                },
                four),
            refused("column_shards", "2" + and_plan + "4 cuts of columns; set 4 or 0"));
}

TEST(CheckPins, CollectivesThatAreAskedForArePinnedToo) {
  spec::Config config = config_of({table("a", 10, 16)});
  const RankLayout four{.ranks = 4, .hosts = {0, 0, 1, 1}};
  const Plan flat = make_plan(config, four);
  config.collectives = spec::Collectives::kHierarchical;
  const Plan relayed = make_plan(config, four);
  check_pins(relayed, config);
  check_pins(make_plan(config, 4), config);  // of one host
  const auto message = [](const std::string& asked, const std::string& has) {
    return "collectives is " + asked + " in the configuration and the plan has " + has +
           "; set auto, or make a new plan";
  };
  EXPECT_EQ(error_of_placing([&] { check_pins(flat, config); }),
            message("hierarchical", "ids: flat"));
  config.collectives = spec::Collectives::kFlat;
  check_pins(flat, config);
  Plan mixed = flat;
  mixed.collectives.dense = spec::CollectiveForm::kHierarchical;
  EXPECT_EQ(error_of_placing([&] { check_pins(mixed, config); }),
            message("flat", "dense: hierarchical"));
  config.collectives = spec::Collectives::kAuto;
  for (const Plan& plan : {flat, relayed, mixed}) {
    check_pins(plan, config);
  }
}

TEST(CheckPlan, HostsAreNumberedByTheirFirstRanks) {
  spec::Config config = config_of({table("a", 10, 16)});
  const auto error = [&](const std::vector<std::int64_t>& hosts) {
    Plan plan = make_plan(config, 4);
    plan.hosts = hosts;
    return error_of_placing([&] { check_plan(plan, config); });
  };
  const auto refused = [](int rank, int host, int next) {
    return fmt::format(
        "the plan has rank {} on host {}, where the next host is {}; number hosts by their first "
        "ranks, from 0",
        rank, host, next);
  };
  EXPECT_EQ(error({0, 1, 0, 2}), "no error");
  EXPECT_EQ(error({1, 1, 0, 0}), refused(0, 1, 0));
  EXPECT_EQ(error({0, 2, 1, 1}), refused(1, 2, 1));
  EXPECT_EQ(error({0, 0, -1, 1}), refused(2, -1, 1));
}

TEST(CheckPlan, FindsDamageToEveryNthRow) {
  spec::Config config = config_of({table("a", 10, 16)});
  config.tables[0].sharding = Sharding::kRowWise;
  config.tables[0].row_split = spec::RowSplit::kModulo;
  const auto damaged = [&](const std::function<void(std::vector<Shard>&)>& damage) {
    Plan plan = make_plan(config, 3);
    plan.tables[0].shards.edit(damage);
    return error_of_placing([&] { check_plan(plan, config); });
  };
  const std::string of = "the plan of table a: rows ";
  const std::string advice = "; make a new plan for this configuration";
  EXPECT_EQ(damaged([](auto& s) { s.pop_back(); }),
            of +
                "[0, 10) in steps of 3 are number 0 of 2 cuts, which should be [0, 10) in steps "
                "of 2" +
                advice);
  EXPECT_EQ(damaged([](auto& s) { std::swap(s[1], s[2]); }),
            of +
                "[2, 10) in steps of 3 are number 1 of 3 cuts, which should be [1, 10) in steps "
                "of 3" +
                advice);
  EXPECT_EQ(damaged([](auto& s) { s[1].rows.step = 1; }),
            of + "[1, 10) are number 1 of 3 cuts, which should be [1, 10) in steps of 3" + advice);
  EXPECT_EQ(damaged([](auto& s) { s.resize(1); }),
            of + "[0, 10) in steps of 3 stand beside ranges, or alone; cut all rows by one rule" +
                advice);
  EXPECT_EQ(damaged([](auto& s) { s[0].rows.step = 0; }),
            "the plan of table a: the block of rows [0, 10) in steps of 0 and columns [0, 16) is "
            "empty or outside [10, 16]" +
                advice);
}

TEST(MakePlan, PartsAreResolved) {
  spec::Config config = config_of({table("a", 2, 16)});
  EXPECT_EQ(make_plan(config, 1).parts, 8);
  EXPECT_EQ(make_plan(config, 12).parts, 12);
  config.numerics.parts = 4;
  EXPECT_EQ(make_plan(config, 4).parts, 4);
  EXPECT_EQ(error_of_placing([&] { make_plan(config, 5); }),
            "numerics.parts: 4 parts cannot be spread over 5 ranks, each needs one at least; set "
            "numerics.parts=5 or more, or run on 4 ranks");
  config.numerics.parts = 0;
  EXPECT_EQ(error_of_placing([&] { make_plan(config, 65537); }),
            "numerics.parts: 65537 ranks need a part each, and there are 65536 parts at most; run "
            "on 65536 ranks or fewer");
}

TEST(MakePlan, TablesMayHaveFewerGroupsThanTheMesh) {
  spec::Config config =
      config_of({table("all", 80, 16), table("half", 80, 16), table("mesh", 80, 16)});
  config.mesh.groups = 4;
  for (spec::Table& one : config.tables) {
    one.sharding = Sharding::kRowWise;
  }
  config.tables[0].groups = 1;
  config.tables[1].groups = 2;
  const RankLayout world{.ranks = 8, .hosts = {0, 0, 0, 0, 1, 1, 1, 1}};
  const Plan plan = make_plan(config, world);
  EXPECT_EQ(plan.ranks, 2);
  EXPECT_EQ(plan.groups, 4);
  const std::vector<std::int64_t> ranks = {8, 4, 2};
  for (std::size_t t = 0; t < ranks.size(); ++t) {
    EXPECT_EQ(plan.ranks_of(plan.tables[t]), ranks[t]);
    EXPECT_EQ(std::ssize(plan.tables[t].shards), ranks[t]);
  }
  EXPECT_EQ(plan.hosts, world.hosts) << "of the largest group";
  EXPECT_NO_THROW(check_plan(plan, config); check_pins(plan, config));
  EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(plan), "plan"), plan);
  config.tables[0].groups = 2;
  EXPECT_EQ(make_plan(config, world).hosts, std::vector<std::int64_t>{}) << "4 ranks of one host";
  config.mesh.layout = spec::MeshLayout::kLocalAllReduce;  // positions 0, 1, 2: ranks 0, 4, 1
  EXPECT_EQ(make_plan(config, world).hosts, (std::vector<std::int64_t>{0, 1, 0, 1}));
}

TEST(MakePlan, TablesOfAllGroupsLoadTheSameRanks) {
  // a -> rank 0 of 4; b of groups of 2 -> rank 1, as rank 0 has a; c -> rank 2, 1 and 3 have b.
  spec::Config config = config_of({table("a", 100, 16), table("b", 50, 16), table("c", 10, 16)});
  config.mesh.groups = 2;
  config.tables[0].groups = config.tables[2].groups = 1;
  EXPECT_EQ(owners(make_plan(config, 4)), (std::vector<std::int64_t>{0, 1, 2}));
}

TEST(MakePlan, RefusesRanksThatAreNotThere) {
  spec::Config config = config_of({table("a", 2, 16)});
  config.tables[0].rank = 3;
  EXPECT_EQ(error_of_placing([&] { make_plan(config, 3); }),
            "tables.a.rank: there is no rank 3 among 3 ranks; use 0 to 2, or -1 to have it placed");
  config.tables[0].rank = -1;
  config.tables[0].host = 2;
  EXPECT_EQ(error_of_placing([&] { make_plan(config, {.ranks = 3, .hosts = {0, 1, 1}}); }),
            "tables.a.host: there is no host 2 among 2 hosts; use 0 to 1, or -1 to have it placed");
  EXPECT_EQ(error_of_placing([&] { make_plan(config, 0); }),
            "a plan needs at least one rank, not 0");
}

TEST(CheckPlan, FindsDamageToGridsAndHosts) {
  spec::Config config =
      config_of({table("grid", 10, 64), table("rows", 10, 16), table("cols", 10, 40)});
  config.tables[0].sharding = Sharding::kGridShard;
  config.tables[1].sharding = Sharding::kTableRowWise;
  config.tables[2].sharding = Sharding::kTableColumnWise;
  config.tables[1].host = config.tables[2].host = 1;
  const auto damaged = [&](const std::function<void(Plan&)>& damage) {
    Plan plan = make_plan(config, {.ranks = 4, .hosts = {0, 0, 1, 1}});
    damage(plan);
    return error_of_placing([&] { check_plan(plan, config); });
  };
  const auto grid = [&](const std::function<void(std::vector<Shard>&)>& damage) {
    return damaged([&](Plan& plan) { plan.tables[0].shards.edit(damage); });
  };
  const std::string advice = "; make a new plan for this configuration";
  const std::string of_grid = "the plan of table grid: ";
  EXPECT_EQ(grid([](auto&) {}), "no error");
  EXPECT_EQ(grid([](auto& s) { s.clear(); }),
            of_grid + "rows from 0 to 10 are held by no shard" + advice);
  EXPECT_EQ(grid([](auto& s) { s.pop_back(); }),
            of_grid +
                "rows [0, 5) are in 2 shards and rows [5, 10) in 1; a grid cuts all rows at "
                "the same columns" +
                advice);
  EXPECT_EQ(grid([](auto& s) { s.resize(2); }),
            of_grid + "rows from 5 to 10 are held by no shard" + advice);
  EXPECT_EQ(grid([](auto& s) { s[2].rows.begin = s[3].rows.begin = 4; }),
            of_grid + "rows from 5 are held by no shard, or twice, or out of order" + advice);
  EXPECT_EQ(grid([](auto& s) { std::swap(s[0].cols, s[1].cols); }),
            of_grid +
                "of rows [0, 5), columns from 0 are held by no shard, or twice, or out of "
                "order" +
                advice);
  EXPECT_EQ(grid([](auto& s) { s[3].cols.begin = 16; }),
            of_grid +
                "of rows [5, 10), columns from 32 are held by no shard, or twice, or out of "
                "order" +
                advice);
  EXPECT_EQ(grid([](auto& s) { s[2].cols.end = s[3].cols.begin = 48; }),
            of_grid +
                "rows [0, 5) are cut at columns [0, 32) and rows [5, 10) at [0, 48); a grid "
                "cuts all rows at the same columns" +
                advice);
  EXPECT_EQ(grid([](auto& s) { s[1].cols.end = 48; }),
            of_grid + "of rows [0, 5), columns from 48 to 64 are held by no shard" + advice);
  EXPECT_EQ(grid([](auto& s) { s[1].rank = 0; }),
            of_grid + "rank 0 holds two column shards, [0, 32) and [32, 64); join them" + advice);
  EXPECT_EQ(grid([](auto& s) { s[2].rank = 0; }), "no error") << "other rows may lie there";
  EXPECT_EQ(damaged([](Plan& p) { p.tables[1].shards.edit([](auto& s) { s[0].rank = 0; }); }),
            "the plan of table rows: table_row_wise is for the ranks of one host, and ranks 0 and "
            "3 are on hosts 0 and 1" +
                advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[2].shards.edit([](auto& s) { s[1].rank = 1; }); }),
            "the plan of table cols: table_column_wise is for the ranks of one host, and ranks 2 "
            "and 1 are on hosts 1 and 0" +
                advice);
  EXPECT_EQ(damaged([](Plan& p) {
              p.tables[1].shards.edit([](auto& s) { s[0].rank = 0; });
              p.hosts.clear();
            }),
            "no error")
      << "a plan without hosts is of one";
  EXPECT_EQ(damaged([](Plan& p) { p.hosts.pop_back(); }),
            "the plan has hosts of 3 ranks, and 4 ranks; make a new plan");
}

TEST(CheckPlan, TablesHaveTheGroupsThatAreConfigured) {
  spec::Config config = config_of({table("rows", 10, 16), table("all", 10, 16)});
  config.mesh.groups = 4;
  config.tables[0].sharding = Sharding::kRowWise;
  config.tables[0].groups = 2;
  config.tables[1].sharding = Sharding::kDataParallel;
  const auto damaged = [&](const std::function<void(Plan&)>& damage) {
    Plan plan = make_plan(config, 8);
    damage(plan);
    return error_of_placing([&] { check_plan(plan, config); });
  };
  const std::string advice = "; make a new plan for this configuration";
  EXPECT_EQ(damaged([](Plan&) {}), "no error");
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].groups = 0; }),
            "the plan of table rows: it is for 4 replica groups and the configuration has 2 "
            "(tables.rows.groups)" +
                advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[1].groups = 1; }),
            "the plan of table all: data_parallel is on all ranks of all groups, and the plan has "
            "1 groups of it" +
                advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].shards.edit([](auto& s) { s[3].rank = 4; }); }),
            "the plan of table rows: rank 4 is not among the 4 ranks" + advice);
  EXPECT_EQ(damaged([](Plan& p) { p.hosts = {0, 1}; }),
            "the plan has hosts of 2 ranks, and 4 ranks; make a new plan");
}

TEST(CheckPlan, FindsEveryKindOfDamage) {
  spec::Config config =
      config_of({table("rows", 10, 16), table("cols", 10, 40), table("all", 10, 16)});
  config.tables[0].sharding = Sharding::kRowWise;
  config.tables[1].sharding = Sharding::kColumnWise;
  config.tables[2].sharding = Sharding::kDataParallel;
  const auto damaged = [&](const std::function<void(Plan&)>& damage) {
    Plan plan = make_plan(config, 2);
    damage(plan);
    return error_of_placing([&] { check_plan(plan, config); });
  };
  const std::string advice = "; make a new plan for this configuration";
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].shards.edit([](auto& s) { s.pop_back(); }); }),
            "the plan of table rows: rows from 5 to 10 are held by no shard" + advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].shards.edit([](auto& s) { s[1].rows.begin = 4; }); }),
            "the plan of table rows: rows from 5 are held by no shard, or twice, or out of order" +
                advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].shards.edit([](auto& s) { s[0].rows = {5, 5}; }); }),
            "the plan of table rows: the block of rows [5, 5) and columns [0, 16) is empty or "
            "outside [10, 16]" +
                advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[1].shards.edit([](auto& s) { s[0].cols.end = 8; }); }),
            "the plan of table cols: columns [0, 8) are not cut at multiples of 16" + advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[1].shards.edit([](auto& s) { s[0].rows.end = 8; }); }),
            "the plan of table cols: a shard holds rows [0, 8) of 10" + advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[1].shards.edit([](auto& s) { s[1].rank = 2; }); }),
            "the plan of table cols: rank 2 is not among the 2 ranks" + advice);
  EXPECT_EQ(
      damaged([](Plan& p) { p.tables[1].shards.edit([](auto& s) { s[1].rank = s[0].rank; }); }),
      "the plan of table cols: rank 0 holds two column shards, [0, 16) and [16, 40); join them" +
          advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[2].shards.edit([](auto& s) { s.pop_back(); }); }),
            "the plan of table all: data_parallel on 2 ranks has 1 shards" + advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[2].shards.edit([](auto& s) { s[1].rank = 0; }); }),
            "the plan of table all: data_parallel needs the whole table on every rank in order; "
            "shard 1 is not" +
                advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].sharding = Sharding::kAuto; }),
            "the plan of table rows: its sharding is not resolved" + advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].sharding = Sharding::kTableWise; }),
            "the plan of table rows: table_wise has 2 shards, not one" + advice);
  EXPECT_EQ(damaged([](Plan& p) { p.tables[0].table = "x"; }),
            "table 0 of the plan is 'x', that of the configuration 'rows'; make a new plan");
  EXPECT_EQ(damaged([](Plan& p) { p.tables.pop_back(); }),
            "the plan has 2 tables, the configuration 3; make a new plan");
  EXPECT_EQ(damaged([](Plan& p) { p.parts = 1; }),
            "the plan has 1 parts for 2 ranks; each rank needs one at least");
}

}  // namespace
}  // namespace weft::planner
