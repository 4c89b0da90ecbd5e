#include "weft/planner/workload.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"
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

TEST(Workload, EveryNthRowOfThoseByFrequency) {
  const FeatureUse use{.by_frequency = true, .segments = zipf_segments(1000, 1.05)};
  double sum = 0.0;
  for (std::int64_t k = 0; k < 4; ++k) {
    const RowSet rows(k, 1000, 4);
    const double share = share_of_rows(use, rows, 1000);
    const FeatureUse held = use_of_rows(use, rows, 1000);
    EXPECT_NEAR(rows_of(held.segments), 250, 1) << k;
    EXPECT_NEAR(shares_of(held.segments), 1.0, 1e-9) << k;
    // Row k is one of the four most frequent, and on this shard alone.
    EXPECT_NEAR(held.segments.front().share * share,
                use.segments[0].share / static_cast<double>(k + 1), 0.2 * use.segments[0].share)
        << k;
    sum += share;
  }
  EXPECT_NEAR(sum, 1.0, 1e-9);
  EXPECT_GT(share_of_rows(use, RowSet(0, 1000, 4), 1000),
            1.3 * share_of_rows(use, RowSet(3, 1000, 4), 1000));
}

TEST(Workload, JoinedFeaturesShareTheirFrequentRows) {
  const FeatureUse a{.length = 3.0, .segments = zipf_segments(1000, 1.05)};
  const FeatureUse b{.length = 1.0, .segments = zipf_segments(700, 0.0)};
  EXPECT_EQ(unique_rows(joined({&a}), 100), unique_rows(a, 100));
  const FeatureUse twice = joined({&a, &a});
  EXPECT_DOUBLE_EQ(twice.length, 6.0);
  EXPECT_NEAR(unique_rows(twice, 100), unique_rows(a, 100), 1e-9);
  const FeatureUse both = joined({&a, &b});
  EXPECT_NEAR(rows_of(both.segments), 1000, 1e-9);
  EXPECT_NEAR(shares_of(both.segments), 1.0, 1e-9);
  EXPECT_NEAR(both.segments.front().share, 0.75 * a.segments.front().share + 0.25 / 700, 1e-9);
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

std::string error_of_statistics(const std::string& text) {
  try {
    make_workload(one_feature(), text, "s.json");
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    return error.what();
  }
  return "no error";
}

/// kStats with one value, or one key, replaced.
std::string changed(const std::string& from, const std::string& to) {
  std::string text = kStats;
  const std::size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  return text.replace(at, from.size(), to);
}

TEST(Workload, RefusesWhatIsNoStatistics) {
  const std::string begin = "s.json has no statistics of columns: it has ";
  const std::string advice = "; write them with weft data stats --format json";
  for (const auto& [text, says] :
       {std::pair{std::string("{"), "no JSON: byte 2 is not what can stand there"},
        {"", "no JSON: byte 1 is not what can stand there"},
        {"[1e999]", "a number that is too large"},
        {"[]", "[], not an object"},
        {R"({"categorical": []})", "version null; this Weft reads version 1"},
        {R"({"version": 2, "categorical": []})", "version 2; this Weft reads version 1"},
        {R"({"version": [1], "categorical": []})", "version [1]; this Weft reads version 1"},
        {R"({"version": 1})", "no list 'categorical'"},
        {R"({"version": 1, "categorical": {"c": 1}})", "no list 'categorical'"},
        {R"({"version": 1, "categorical": [3]})",
         "an entry 0 of 'categorical' without a text 'name': 3"},
        {R"({"version": 1, "categorical": [{"name": "d"}, {"name": 3}]})",
         R"(an entry 1 of 'categorical' without a text 'name': {"name":3})"}}) {
    EXPECT_EQ(error_of_statistics(text), begin + says + advice) << text;
  }
  EXPECT_EQ(error_of_statistics(R"({"version": 1, "categorical": [{"name": "d"}]})"),
            "s.json has none of the columns of this configuration; make statistics of its data");
}

TEST(Workload, RefusesStatisticsThatNoDataHas) {
  const std::string begin = "s.json has no statistics of columns: it has column c (of feature c) ";
  const std::string advice = "; write them with weft data stats --format json";
  const auto wrong = [&](const std::string& key, const std::string& from, const std::string& to,
                         const std::string& most) {
    const std::string quoted = "\"" + key + "\": ";
    EXPECT_EQ(error_of_statistics(changed(quoted + from, quoted + to)),
              begin + "with " + key + " " + to + ", not a number from 0 to " + most + advice);
  };
  for (const char* bad :
       {"-1", "-1e-300", "2000000000", "1e+300", "null", "true", "\"2.5\"", "[2.5]", "{}"}) {
    wrong("length_mean", "2.5", bad, "1000000000");
  }
  for (const char* bad : {"-0.5", "1.5", "null", "18446744073709551615"}) {
    wrong("missing", "0.2", bad, "1");
    wrong("top_1", "0.1", bad, "1");
    wrong("top_10", "0.3", bad, "1");
    wrong("top_1000", "1.0", bad, "1");
    wrong("top_percent", "0.2", bad, "1");
  }
  wrong("distinct", "400", "-400", "1000000000000000000");
  wrong("distinct", "400", "18446744073709551615", "1000000000000000000");
  EXPECT_EQ(error_of_statistics(
                changed("\"top_100\": 0.8", "\"top_100\": [0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9]")),
            begin +
                "with top_100 [0.1,0.2,0.3,0.4,0.5,0.6,0.7,0.8,0.9], not a number from 0 to "
                "1" +
                advice);
  for (const char* key : {"length_mean", "missing", "distinct", "top_1", "top_10", "top_100",
                          "top_1000", "top_percent"}) {
    const std::string quoted = std::string("\"") + key + "\"";
    EXPECT_EQ(error_of_statistics(changed(quoted, "\"other\""))
                  .find(begin + "without '" + key + "', a number"),
              0U)
        << key;
  }
  EXPECT_EQ(error_of_statistics(changed("400", "400.5")),
            begin + "with distinct 400.5, not a whole number" + advice);
  EXPECT_EQ(error_of_statistics(changed("2.5", "0.5")),
            begin +
                "with length_mean 0.5, less than 0.8, the share of samples with an id (1 - "
                "missing)" +
                advice);
  EXPECT_EQ(
      error_of_statistics(changed("0.2", "1")),
      begin + "with length_mean 2.5, missing 1 and distinct 400: ids that nobody has" + advice);
  EXPECT_EQ(
      error_of_statistics(changed("400", "0")),
      begin + "with length_mean 2.5, missing 0.2 and distinct 0: ids that nobody has" + advice);
  EXPECT_EQ(error_of_statistics(changed("0.3", "0.05")),
            begin + "with top_10 0.05 below top_1 0.1, of fewer ids" + advice);
  EXPECT_EQ(
      error_of_statistics(changed("]}",
                                  ", {\"name\": \"c\", \"length_mean\": 1, \"missing\": 0, "
                                  "\"distinct\": 1, \"top_1\": 1, \"top_10\": 1, \"top_100\": 1, "
                                  "\"top_1000\": 1, \"top_percent\": 1}]}")),
      begin + "twice" + advice);
  EXPECT_EQ(error_of_statistics(changed("]}", ", {\"name\": \"other\", \"length_mean\": -1}]}")),
            "no error")
      << "a column that nobody reads";
}

/// kStats with another number in the place of one of its own.
std::string with_other_number(std::uint64_t seed) {
  constexpr std::array<const char*, 14> kNumbers = {
      "0",    "1",   "0.5", "0.05", "0.99", "2",     "7",
      "1000", "1e9", "-1",  "1e18", "null", "1e308", "18446744073709551615"};
  std::vector<std::size_t> places;
  for (std::size_t at = kStats.find("\": "); at != std::string::npos;
       at = kStats.find("\": ", at + 1)) {
    if (std::isdigit(static_cast<unsigned char>(kStats[at + 3])) != 0) {
      places.push_back(at + 3);
    }
  }
  std::string text = kStats;
  const auto words = philox(seed, 0, 1);
  const std::size_t at = places[words[0] % places.size()];
  return text.replace(at, text.find_first_of(",}", at) - at, kNumbers[words[1] % kNumbers.size()]);
}

TEST(Workload, OfDamagedStatisticsIsOneThatCanBeUsedOrAnError) {
  constexpr std::array<const char*, 20> kPieces = {"0",
                                                   "1",
                                                   "-",
                                                   "e9",
                                                   "1e308",
                                                   ".",
                                                   "null",
                                                   "true",
                                                   "[",
                                                   "]",
                                                   "{",
                                                   "}",
                                                   ",",
                                                   ":",
                                                   "\"",
                                                   "\"c\"",
                                                   "\"name\"",
                                                   "0.5",
                                                   "18446744073709551615",
                                                   "\xff"};
  std::int64_t used = 0;
  for (std::uint64_t seed = 0; seed < 20000; ++seed) {
    std::string text = seed % 2 == 0 ? kStats : with_other_number(seed);
    const auto draw = [&](std::uint64_t what, std::size_t below) {
      return philox(seed, what, 0)[0] % below;
    };
    for (std::uint64_t i = seed % 2; i <= seed % 3; ++i) {
      const std::size_t at = draw(4 * i, text.size());
      const std::size_t length = std::min<std::size_t>(draw(4 * i + 1, 6), text.size() - at);
      const std::size_t piece = draw(4 * i + 2, kPieces.size() + 1);
      text.replace(at, length, piece < kPieces.size() ? kPieces[piece] : "");
    }
    try {
      const Workload workload = make_workload(one_feature(), text, "s.json");
      const FeatureUse& use = workload.features.at(0);
      ASSERT_TRUE(use.length >= 0.0 && std::isfinite(use.length)) << text;
      ASSERT_TRUE(use.present >= 0.0 && use.present <= 1.0) << text;
      ASSERT_NEAR(shares_of(use.segments), 1.0, 1e-9) << text;
      ASSERT_LE(rows_of(use.segments), 100 * (1 + 1e-9)) << text;
      for (const AccessSegment& segment : use.segments) {
        ASSERT_TRUE(segment.rows > 0.0 && segment.share > 0.0) << text;
      }
      for (const double ids : {0.0, 1.0, 1e6}) {
        const double unique = unique_rows(use, ids);
        ASSERT_TRUE(unique >= 0.0 && unique <= ids && unique <= 100 * (1 + 1e-9)) << text;
      }
      ++used;
    } catch (const Error& error) {
      ASSERT_EQ(error.code(), ErrorCode::kConfig) << text;
      ASSERT_EQ(std::string(error.what()).find("s.json has no"), 0U) << error.what();
    }
  }
  EXPECT_GT(used, 500) << "most were no statistics: the test shows less";
}

}  // namespace
}  // namespace weft::planner
