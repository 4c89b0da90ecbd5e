#include "weft/planner/workload.h"

#include <cmath>
#include <string>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/cost/tables.h"

namespace weft::planner {
namespace {

double rows_of(const std::vector<AccessSegment>& segments) {
  double rows = 0;
  for (const AccessSegment& segment : segments) {
    rows += segment.rows;
  }
  return rows;
}

double shares_of(const std::vector<AccessSegment>& segments) {
  double shares = 0;
  for (const AccessSegment& segment : segments) {
    shares += segment.share;
  }
  return shares;
}

TEST(Workload, ZipfSegmentsCoverAllRowsAndIds) {
  for (const double s : {0.0, 0.5, 1.0, 1.05, 1.6}) {
    for (const double rows : {1.0, 2.0, 7.0, 1000.0, 1e8}) {
      const auto segments = zipf_segments(rows, s);
      EXPECT_NEAR(rows_of(segments), rows, 1e-6 * rows) << s;
      EXPECT_NEAR(shares_of(segments), 1.0, 1e-12) << s;
      for (std::size_t i = 1; i < segments.size(); ++i) {
        EXPECT_LE(segments[i].share / segments[i].rows,
                  segments[i - 1].share / segments[i - 1].rows * (1 + 1e-9))
            << "the most frequent first";
      }
    }
  }
}

TEST(Workload, ZipfSegmentsAreTheSums) {
  const auto segments = zipf_segments(1000, 1.05);
  double all = 0;
  for (int k = 1; k <= 1000; ++k) {
    all += std::pow(k, -1.05);
  }
  EXPECT_NEAR(segments[0].share, 1 / all, 0.02 / all);
  EXPECT_EQ(segments[0].rows, 1);
}

TEST(Workload, UniqueRowsOfEvenIdsAreTheKnownFormula) {
  FeatureUse use{.segments = zipf_segments(5000, 0.0)};
  for (const double ids : {1.0, 100.0, 5000.0, 1e6}) {
    EXPECT_NEAR(unique_rows(use, ids), cost::expected_unique(5000, ids), 1e-6 * ids);
  }
}

TEST(Workload, UniqueRowsOfSkewedIdsAreFewer) {
  const FeatureUse even{.segments = zipf_segments(5000, 0.0)};
  const FeatureUse skewed{.segments = zipf_segments(5000, 1.2)};
  double last = 0;
  for (const double ids : {1.0, 10.0, 1000.0, 1e5, 1e9}) {
    const double unique = unique_rows(skewed, ids);
    EXPECT_LE(unique, unique_rows(even, ids) * (1 + 1e-9));
    EXPECT_LE(unique, 5000 * (1 + 1e-9));
    EXPECT_GE(unique, last);
    last = unique;
  }
  EXPECT_NEAR(last, 5000, 1);
}

TEST(Workload, SharesOfRows) {
  FeatureUse use{.segments = zipf_segments(1000, 1.05)};
  EXPECT_DOUBLE_EQ(share_of_rows(use, Range{0, 250}, 1000), 0.25) << "hashing scatters";
  EXPECT_DOUBLE_EQ(share_of_rows(use, RowSet(3, 1000, 4), 1000), 0.25);
  use.by_frequency = true;
  const double front = share_of_rows(use, Range{0, 250}, 1000);
  EXPECT_GT(front, 0.7);
  EXPECT_NEAR(front + share_of_rows(use, Range{250, 1000}, 1000), 1.0, 1e-9);
}

spec::Config one_feature() {
  spec::Config config;
  config.data.format = spec::DataFormat::kCriteo;
  config.tables.emplace_back();
  config.tables[0].name = "t";
  config.tables[0].num_embeddings = 100;
  config.sparse_features.emplace_back();
  config.sparse_features[0].name = config.sparse_features[0].column = "c";
  config.sparse_features[0].table = "t";
  return config;
}

const std::string kStats =
    R"({"version": 1, "categorical": [{"name": "c", "length_mean": 2.5, "missing": 0.2,
        "distinct": 400, "top_1": 0.1, "top_10": 0.3, "top_100": 0.8, "top_1000": 1.0,
        "top_percent": 0.2}]})";

TEST(Workload, TakesWhatWasMeasured) {
  const Workload workload = make_workload(one_feature(), kStats, "s.json");
  const FeatureUse& use = workload.features.at(0);
  EXPECT_TRUE(use.measured);
  EXPECT_DOUBLE_EQ(use.length, 2.5);
  EXPECT_DOUBLE_EQ(use.present, 0.8);
  ASSERT_EQ(use.segments.size(), 5U) << "1, 4, 10, 100 and 400 rows";
  EXPECT_NEAR(use.segments[0].share, 0.1, 1e-12);
  EXPECT_NEAR(use.segments[1].share, 0.1, 1e-12);
  EXPECT_NEAR(shares_of(use.segments), 1.0, 1e-12);
  EXPECT_NEAR(rows_of(use.segments), 100, 1e-9) << "as many as the table has";
}

TEST(Workload, RefusesWhatIsNoStatistics) {
  for (const auto& [text, says] :
       {std::pair{std::string("{"), "s.json has no statistics"},
        {R"({"version": 2, "categorical": []})", "version 2"},
        {R"({"version": 1})", "s.json has no statistics"},
        {R"({"version": 1, "categorical": [{"name": "c"}]})", "s.json has no statistics"},
        {R"({"version": 1, "categorical": [{"name": "d"}]})", "none of the columns"}}) {
    try {
      make_workload(one_feature(), text, "s.json");
      ADD_FAILURE() << text;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kConfig);
      EXPECT_NE(std::string(error.what()).find(says), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace weft::planner
