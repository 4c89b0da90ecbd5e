// Hot rows: which rows they are, how tables are then read, and what that costs.
#include "weft/planner/hot_rows.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/planner/made_up.h"
#include "weft/base/error.h"
#include "weft/layout/tables.h"
#include "weft/planner/estimate.h"
#include "weft/planner/place.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/search.h"
#include "weft/spec/yaml.h"

namespace weft::planner {
namespace {

using spec::Sharding;
using testing::make_config;

constexpr double kZipf = 1.05;

/// `listed` rows of a table of `rows`, whose k-th most frequent one is k * step mod rows.
HotRows zipf_rows(std::int64_t rows, std::int64_t listed, std::int64_t step) {
  double all = 0.0;
  for (std::int64_t k = 1; k <= rows; ++k) {
    all += std::pow(static_cast<double>(k), -kZipf);
  }
  HotRows counted{.most = listed, .rows = {}};
  for (std::int64_t k = 1; k <= std::min(listed, rows); ++k) {
    counted.rows.push_back(
        {.row = k * step % rows, .share = std::pow(static_cast<double>(k), -kZipf) / all});
  }
  return counted;
}

/// A workload as if it had been measured: Zipf's law, `listed` rows of every table.
Workload measured(const spec::Config& config, std::int64_t listed) {
  Workload workload = make_workload(config);
  for (FeatureUse& use : workload.features) {
    const auto rows =
        static_cast<double>(config.tables[static_cast<std::size_t>(use.table)].num_embeddings);
    use.segments = zipf_segments(rows, kZipf);
    use.measured = true;
  }
  for (const spec::Table& table : config.tables) {
    workload.hot_rows.push_back(zipf_rows(table.num_embeddings, listed, 7919));
  }
  return workload;
}

topology::Cluster cluster_of_hot_rows(std::int64_t hosts,
                                      std::int64_t ranks,
                                      double network = 1e8) {
  topology::Cluster cluster = testing::made_up_cluster({{.count = hosts, .ranks = ranks}}, network);
  cluster.compute.gemm_fp32.value = 1e11;
  return cluster;
}

std::string error_of_call(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "no error";
}

TEST(HotRanges, AreCountedInAnySetOfRows) {
  const HotRanges rows({{1, 4}, {9, 10}, {12, 20}, {31, 32}});
  EXPECT_EQ(rows.size(), 13);
  for (std::int64_t step = 1; step <= 7; ++step) {
    for (std::int64_t begin = 0; begin < 33; ++begin) {
      for (std::int64_t end = begin; end <= 40; ++end) {
        const RowSet set(begin, end, step);
        std::int64_t expected = 0;
        for (std::int64_t row = 0; row < 40; ++row) {
          expected += set.contains(row) && rows.contains(row) ? 1 : 0;
        }
        ASSERT_EQ(rows.count(set), expected) << begin << " " << end << " " << step;
      }
    }
  }
}

TEST(HotRows, AreTheMostFrequentRowsThatWereCounted) {
  spec::Config config = make_config({{.rows = 10}, {.rows = 30}, {.rows = 20}});
  config.tables[1].hot_rows = 4;
  spec::validate(config);
  std::vector<HotRows> counted(3);
  counted[1] = {.most = 5,
                .rows = {{.row = 7, .share = 0.3},
                         {.row = 29, .share = 0.2},
                         {.row = 8, .share = 0.2},
                         {.row = 0, .share = 0.1},
                         {.row = 9, .share = 0.1}}};
  const spec::Plan plan = make_plan(config, {.ranks = 2}, counted);
  EXPECT_TRUE(plan.tables[0].hot.empty());
  EXPECT_EQ(plan.tables[1].hot, (std::vector<Range>{{0, 1}, {7, 9}, {29, 30}}));
  EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(plan), "p.yaml"), plan);
  EXPECT_NO_THROW(check_plan(plan, config));
  counted[1].rows.resize(2);  // no more ever occurred
  EXPECT_EQ(make_plan(config, {.ranks = 2}, counted).tables[1].hot,
            (std::vector<Range>{{7, 8}, {29, 30}}));
}

TEST(HotRows, OfAVocabularyAreItsFirstRows) {
  spec::Config config = make_config({{.rows = 100}, {}});
  config.tables[0].hot_rows = 12;
  config.sparse_features[0].mapping = spec::IdMapping::kVocabulary;
  spec::validate(config);
  EXPECT_EQ(make_plan(config, 2).tables[0].hot, (std::vector<Range>{{0, 12}}));
  spec::SparseFeature other = config.sparse_features[1];
  other.name = "other";
  other.table = "t0";
  config.sparse_features.push_back(other);
  EXPECT_EQ(error_of_call([&] { spec::validate(config); }),
            "tables.t0.hot_rows: feature t0 numbers rows by a vocabulary and feature other does "
            "not, so nobody counts both; map both alike or remove this key");
}

TEST(HotRows, WithoutStatisticsSayHowToGetThem) {
  spec::Config config = make_config({{.rows = 10}, {.rows = 3000}});
  config.tables[1].hot_rows = 400;
  EXPECT_EQ(error_of_call([&] { make_plan(config, 2); }),
            "tables.t1.hot_rows: 400 rows of the table are to be on every rank, and nothing says "
            "which are most frequent; count them with weft data stats CONFIG --format json "
            "--hot-rows 400 > stats.json and give --stats stats.json");
  std::vector<HotRows> counted(2);
  counted[0].most = 500;
  EXPECT_NE(
      error_of_call([&] { make_plan(config, {.ranks = 2}, counted); }).find("nothing says which"),
      std::string::npos);
  counted[1] = zipf_rows(3000, 100, 7);
  EXPECT_EQ(error_of_call([&] { make_plan(config, {.ranks = 2}, counted); }),
            "tables.t1.hot_rows: 400 rows of the table are to be on every rank, and the statistics "
            "list 100 only; count them with weft data stats CONFIG --format json --hot-rows 400");
  counted[1] = {.most = 400, .rows = {}};
  EXPECT_NE(
      error_of_call([&] { make_plan(config, {.ranks = 2}, counted); }).find("no id was counted"),
      std::string::npos);
  EXPECT_THROW(search(config, cluster_of_hot_rows(1, 2), make_workload(config)), Error);
}

TEST(HotRows, StatisticsOfOtherTablesAreRefused) {
  const spec::Config config = make_config({{.rows = 10}});
  const auto read = [&](const std::string& list) {
    std::string says = error_of_call([&] {
      measured_hot_rows(config, R"({"version": 1, "hot_rows": [)" + list + "]}", "s.json");
    });
    const std::string end = "; write it with weft data stats CONFIG --format json --hot-rows N";
    const std::string begin = "s.json has no list of hot rows of these tables: ";
    if (says.starts_with(begin) && says.ends_with(end)) {
      says = says.substr(begin.size(), says.size() - begin.size() - end.size());
    }
    return says;
  };
  EXPECT_EQ(read(R"({"table": "t0", "most": 3, "rows": [3, 9], "shares": [0.5, 0.5]})"),
            "no error");
  EXPECT_EQ(read(R"({"table": "other", "most": 3, "rows": [30], "shares": [0.5]})"), "no error");
  EXPECT_EQ(read(R"({"table": "t0", "most": 3, "rows": [10], "shares": [0.5]})"),
            "row 10 of table t0, which has 10 rows");
  EXPECT_EQ(read(R"({"table": "t0", "most": 3, "rows": [4, 4], "shares": [0.5, 0.1]})"),
            "row 4 of table t0 twice");
  EXPECT_EQ(read(R"({"table": "t0", "most": 3, "rows": [4, 5], "shares": [0.5, 0.6]})"),
            "shares of table t0 that are negative, or more than 1 together");
  EXPECT_EQ(read(R"({"table": "t0", "most": 3, "rows": [4], "shares": []})"),
            "1 rows of table t0 and 0 shares");
  EXPECT_NE(read(R"({"table": "t0", "most": 3, "rows": ["x"], "shares": [1]})"), "no error");
  EXPECT_NE(read(R"({"table": "t0"})"), "no error");
  EXPECT_NE(error_of_call([&] { measured_hot_rows(config, "{", "s.json"); }), "no error");
  EXPECT_TRUE(measured_hot_rows(config, R"({"version": 1})", "s.json").empty());
}

/// Shards of any cut get together what hot rows do not.
TEST(HotRows, AndTheTailAreTheTable) {
  constexpr std::int64_t kRows = 5000;
  const std::vector<std::vector<Range>> choices = {
      {{0, 300}}, {{20, 21}, {70, 400}, {4990, 5000}}, {{0, 1}}, {{0, 4999}}};
  spec::Config config = make_config({{.rows = kRows, .length = 5}});
  for (const auto how : {"measured", "by frequency", "unknown"}) {
    Workload workload = measured(config, 1000);
    workload.features[0].by_frequency = how == std::string("by frequency");
    if (how == std::string("unknown")) {
      workload.hot_rows.clear();
    }
    const HotUses uses(config, workload);
    EXPECT_EQ(uses.of(0, {}), nullptr);
    for (const std::vector<Range>& choice : choices) {
      const auto hot_use = uses.of(0, choice);
      EXPECT_EQ(uses.of(0, choice), hot_use) << "looked at once";
      ASSERT_EQ(hot_use->hot.features.size(), 1U);
      ASSERT_EQ(hot_use->tail.features.size(), 1U);
      const FeatureUse& hot = *hot_use->hot.features[0];
      const FeatureUse& tail = *hot_use->tail.features[0];
      EXPECT_NEAR(hot.length, 5 * hot_use->share, 1e-9);
      EXPECT_LE(unique_rows(hot, 1e9), static_cast<double>(hot_use->rows->size()) * (1 + 1e-9));
      EXPECT_NEAR(unique_rows(hot, 1e-6), 1e-6, 1e-9) << "shares add up to 1";
      EXPECT_NEAR(share_of_rows(tail, Range{0, kRows}, kRows), 1.0 - hot_use->share, 1e-9) << how;
      for (const std::int64_t cuts : {3, 8}) {
        double ranges = 0.0;
        double modulo = 0.0;
        double rows = 0.0;
        for (std::int64_t k = 0; k < cuts; ++k) {
          ranges += share_of_rows(tail, piece(kRows, cuts, k), kRows);
          modulo += share_of_rows(tail, RowSet(k, kRows, cuts), kRows);
          if (share_of_rows(tail, RowSet(k, kRows, cuts), kRows) > 0.0) {
            rows += unique_rows(use_of_rows(tail, RowSet(k, kRows, cuts), kRows), 1e12);
          }
        }
        EXPECT_NEAR(ranges, 1.0 - hot_use->share, 1e-9) << how;
        EXPECT_NEAR(modulo, 1.0 - hot_use->share, 1e-9) << how;
        EXPECT_LE(rows, static_cast<double>(kRows - hot_use->rows->size()) + 1.0) << how;
      }
    }
  }
}

TEST(HotRows, GetTheSharesThatWereCounted) {
  const spec::Config config = make_config({{.rows = 5000}});
  const Workload workload = measured(config, 1000);
  const HotUses uses(config, workload);
  double counted = 0.0;
  for (std::size_t k = 0; k < 200; ++k) {
    counted += workload.hot_rows[0].rows[k].share;
  }
  EXPECT_NEAR(uses.of(0, hottest_rows(config, 0, workload.hot_rows, 200))->share, counted, 1e-9);
  EXPECT_GT(counted, 0.5);
  // Of rows that are not listed each has as much of what is left.
  double listed = 0.0;
  for (const HotRow& row : workload.hot_rows[0].rows) {
    listed += row.share;
  }
  std::int64_t free = 0;
  while (std::any_of(workload.hot_rows[0].rows.begin(), workload.hot_rows[0].rows.end(),
                     [&](const HotRow& row) { return row.row == free; })) {
    ++free;
  }
  EXPECT_NEAR(uses.of(0, {{free, free + 1}})->share, (1.0 - listed) / 4000.0, 1e-12);
}

TEST(HotRows, HaveIdsAndVectorsThatDoNotTravel) {
  spec::Config config = make_config({{.rows = 100'000, .dim = 16}}, 4096);
  config.tables[0].sharding = Sharding::kTableWise;
  config.tables[0].rank = 0;
  const Workload workload = measured(config, 1000);
  const topology::Cluster cluster = cluster_of_hot_rows(1, 2);
  const Estimator estimator(config, cluster, workload, 8);
  spec::Plan plan = make_plan(config, 2);
  const PlanCost before = estimator.cost(plan);
  plan.tables[0].hot = hottest_rows(config, 0, workload.hot_rows, 1000);
  const PlanCost after = estimator.cost(plan);
  const double q = estimator.hot_use_of(0, plan.tables[0].hot)->share;
  EXPECT_GT(q, 0.5);
  const ShardLoad own =
      estimator.hot_rows(0, *estimator.hot_use_of(0, plan.tables[0].hot), spec::PooledAt::kOwner);
  EXPECT_NEAR(own.ids, 2048 * q, 1e-6);
  EXPECT_NEAR(after.ranks[0].load.ids, 4096 * (1 - q) + 2048 * q, 1e-6);
  EXPECT_NEAR(after.ranks[1].load.ids, 2048 * q, 1e-6);
  EXPECT_NEAR(after.ranks[0].load.vector_bytes, (1 - q) * before.ranks[0].load.vector_bytes, 1e-3);
  EXPECT_NEAR(after.ranks[0].load.gradient_bytes, (1 - q) * before.ranks[0].load.gradient_bytes,
              1e-3);
  EXPECT_NEAR(after.ranks[0].load.ids_bytes, 2048 * (1 + 4 * (1 - q)), 1e-3);
  const std::int64_t hot_bytes = layout::shard_bytes(config.tables[0], 1000, 16);
  EXPECT_EQ(after.ranks[0].table_bytes, before.ranks[0].table_bytes + hot_bytes);
  EXPECT_EQ(after.ranks[1].table_bytes, hot_bytes);
  EXPECT_LE(own.unique, 1000 * (1 + 1e-9));
}

TEST(HotRows, MakeAStepOfSkewedTablesShorter) {
  spec::Config config = make_config({{.rows = 200'000, .dim = 64}, {}, {}}, 65'536);
  config.tables[0].sharding = Sharding::kRowWise;
  config.tables[0].pooled_at = spec::PooledAt::kOwner;
  const topology::Cluster cluster = cluster_of_hot_rows(2, 4, 1e8);
  const Workload workload = measured(config, 4096);
  const double without = search(config, cluster, workload).best().cost.step_s;
  config.tables[0].hot_rows = 128;
  const SearchResult result = search(config, cluster, workload);
  const Proposal& best = result.best();
  EXPECT_LT(best.cost.step_s, 0.95 * without);
  std::int64_t rows = 0;
  for (const Range& range : best.plan.tables[0].hot) {
    rows += range.size();
  }
  EXPECT_EQ(rows, 128);
  for (const Proposal& one : result.proposals) {
    EXPECT_EQ(one.plan.tables[0].hot, best.plan.tables[0].hot) << "asked for: " << one.name;
    EXPECT_NO_THROW(check_plan(one.plan, config)) << one.name;
  }
  EXPECT_EQ(spec::plan_from_yaml(spec::plan_to_yaml(best.plan), "p.yaml"), best.plan);
  const PlanReport report{config, cluster, workload, result};
  for (const std::string& text : {to_text(report), to_html(report)}) {
    EXPECT_NE(text.find("128 hot rows"), std::string::npos) << text;
    EXPECT_NE(text.find("% of its ids on hot rows; asked for"), std::string::npos) << text;
  }
  EXPECT_NE(to_json(report).find("\"head_rows\": 128"), std::string::npos);
}

TEST(HotRows, AreFoundWhereRowsWereCounted) {
  spec::Config config =
      make_config({{.rows = 300'000, .dim = 64, .length = 1}, {.length = 1}}, 65'536);
  for (spec::Table& table : config.tables) {
    table.pooled_at = spec::PooledAt::kOwner;  // else rows travel once, and hot rows save less
  }
  const topology::Cluster cluster = cluster_of_hot_rows(4, 2, 2e7);
  Workload workload = measured(config, 20'000);
  const SearchResult found = search(config, cluster, workload);
  EXPECT_FALSE(found.best().plan.tables[0].hot.empty());
  EXPECT_NO_THROW(check_plan(found.best().plan, config));
  EXPECT_EQ(search(config, cluster, workload).best().plan, found.best().plan);
  config.tables[0].allow = {"row_wise", "column_wise"};
  for (const Proposal& one : search(config, cluster, workload).proposals) {
    EXPECT_TRUE(one.plan.tables[0].hot.empty()) << one.name;
  }
  config.tables[0].allow = {};
  workload.hot_rows.clear();
  const SearchResult unknown = search(config, cluster, workload);
  EXPECT_TRUE(unknown.best().plan.tables[0].hot.empty());
  EXPECT_LT(found.best().cost.step_s, unknown.best().cost.step_s);
}

/// Plans with hot rows, of every scheme, are plans, and take the memory that is left.
TEST(HotRows, EveryProposalWithThemIsAPlan) {
  for (int scheme = 0; scheme <= static_cast<int>(Sharding::kGridShard); ++scheme) {
    if (static_cast<Sharding>(scheme) == Sharding::kDataParallel) {
      continue;
    }
    spec::Config config = make_config({{.rows = 3000, .dim = 64, .length = 6}, {.rows = 50}});
    config.tables[0].sharding = static_cast<Sharding>(scheme);
    config.tables[0].hot_rows = 100;
    const topology::Cluster cluster = cluster_of_hot_rows(2, 3);
    const SearchResult result = search(config, cluster, measured(config, 100));
    for (const Proposal& one : result.proposals) {
      ASSERT_NO_THROW(check_plan(one.plan, config)) << one.name;
      EXPECT_FALSE(one.plan.tables[0].hot.empty()) << one.name << ", " << scheme;
      EXPECT_NE(one.plan.tables[0].sharding, Sharding::kDataParallel) << one.name;
    }
  }
}

}  // namespace
}  // namespace weft::planner
