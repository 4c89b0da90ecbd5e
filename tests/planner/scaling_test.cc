#include "weft/planner/scaling.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "tests/planner/made_up.h"
#include "tests/topology/small_cluster.h"
#include "weft/base/error.h"
#include "weft/planner/search.h"

namespace weft::planner {
namespace {

spec::Config scaled_job() {
  return testing::make_config({{.rows = 50'000, .dim = 64, .length = 4},
                               {.rows = 70'000, .dim = 64, .length = 2},
                               {.rows = 90'000, .dim = 64, .length = 3}});
}

Scaling scaling_of(const spec::Config& config,
                   const topology::Cluster& cluster,
                   const std::vector<std::int64_t>& ranks) {
  return predict_scaling(config, cluster, make_workload(config), ranks);
}

TEST(Scaling, IsTheSearchForEachNumberOfRanks) {
  const topology::Cluster cluster = topology::small_cluster({{2, 2}});
  const spec::Config config = scaled_job();
  const std::vector<std::int64_t> ranks = {2, 6, 3};
  const Scaling scaling = scaling_of(config, cluster, ranks);
  ASSERT_EQ(scaling.strong.size(), ranks.size());
  ASSERT_EQ(scaling.weak.size(), ranks.size());
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    const auto expect_searched = [&](const ScalingPoint& point, std::int64_t batch) {
      spec::Config of_point = config;
      of_point.batch_size = batch;
      const SearchResult found =
          search(of_point, resized(cluster, ranks[i]), make_workload(of_point));
      EXPECT_EQ(point.ranks, ranks[i]);
      EXPECT_EQ(point.batch_size, batch);
      EXPECT_EQ(point.fits, found.best().fits());
      EXPECT_EQ(point.step_s, found.step_s());
      EXPECT_EQ(point.samples_per_s(), static_cast<double>(batch) / found.step_s());
    };
    expect_searched(scaling.strong[i], 4096);
    expect_searched(scaling.weak[i], 2048 * ranks[i]);
  }
}

TEST(Scaling, LatenciesCostStrongScalingMore) {
  topology::Cluster cluster = topology::small_cluster({{8, 4}});
  cluster.links.network.latency.value = 1e-3;
  const Scaling scaling = scaling_of(scaled_job(), cluster, {4, 32});
  EXPECT_EQ(scaling_efficiency(scaling.strong, 0), 1.0);
  EXPECT_EQ(scaling_efficiency(scaling.weak, 0), 1.0);
  EXPECT_LT(scaling_efficiency(scaling.strong, 1), 0.5);
  EXPECT_GT(scaling_efficiency(scaling.weak, 1), 2.0 * scaling_efficiency(scaling.strong, 1));
}

TEST(Scaling, BatchesThatNoJobMayHaveAreRefused) {
  spec::Config config = scaled_job();
  config.batch_size = std::int64_t{1} << 24;
  try {
    scaling_of(config, topology::small_cluster({{2, 2}}), {1, 128});
    FAIL() << "a batch of 2^31 samples";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("weak scaling to 128 ranks"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("batch_size"), std::string::npos) << error.what();
  }
}

TEST(Scaling, RanksWithoutASampleAreRefused) {
  spec::Config config = scaled_job();
  config.batch_size = 3;
  try {
    scaling_of(config, topology::small_cluster({{2, 2}}), {4, 1});
    FAIL() << "a batch of no samples";
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("weak scaling to 1 rank, 0 samples each"),
              std::string::npos)
        << error.what();
  }
}

TEST(Scaling, ReportsSayWhatDoesNotFit) {
  topology::Cluster cluster = topology::small_cluster({{2, 2}});
  const std::string fits = to_text(scaling_of(scaled_job(), cluster, {2, 4}));
  EXPECT_EQ(fits.find('*'), std::string::npos) << fits;
  cluster.memory.ddr.value = 3e7;  // the tables and their state take twice as much
  const Scaling scaling = scaling_of(scaled_job(), cluster, {1, 4});
  EXPECT_FALSE(scaling.strong[0].fits);
  const std::string text = to_text(scaling);
  EXPECT_NE(text.find("*: does not fit"), std::string::npos) << text;
  EXPECT_NE(text.find("cluster small"), std::string::npos) << text;
  const nlohmann::json report = nlohmann::json::parse(to_json(scaling));
  EXPECT_EQ(report["cluster"], "small");
  EXPECT_EQ(report["strong"][0]["fits"], false);
  EXPECT_EQ(report["weak"][1]["batch_size"], 4 * 4096);
  EXPECT_EQ(report["weak"][1]["step_s"], scaling.weak[1].step_s);
  EXPECT_EQ(report["weak"][1]["efficiency"], scaling_efficiency(scaling.weak, 1));
}

}  // namespace
}  // namespace weft::planner
