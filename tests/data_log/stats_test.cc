// Statistics of a source, against numbers counted by hand.

#include "weft/data/stats.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "weft/base/hash.h"
#include "weft/data/feature_mapper.h"
#include "weft/data/id_counter.h"

namespace weft::data {
namespace {

// Four samples: bags {5, 5, 7}, {}, {5}, {9, 7}; dense 1, NaN, 2, 3; labels 1, 0, 0, 1.
class FourSamples final : public Source {
 public:
  FourSamples() {
    schema_.dense = {"price"};
    schema_.categorical = {{"genres", true, false}};
    schema_.labels = {"click"};
  }

  [[nodiscard]] const Schema& schema() const override { return schema_; }

  [[nodiscard]] std::string describe() const override { return "four samples"; }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    return std::clamp<std::int64_t>(4 - first, 0, count);
  }

  void read(std::span<const std::int64_t> ids, RawBlock& out) override {
    const std::vector<std::vector<std::int64_t>> bags = {{5, 5, 7}, {}, {5}, {9, 7}};
    const std::vector<float> dense = {1.0F, std::nanf(""), 2.0F, 3.0F};
    const std::vector<float> labels = {1.0F, 0.0F, 0.0F, 1.0F};
    out.reset(schema_);
    out.size = static_cast<std::int64_t>(ids.size());
    out.categorical[0].offsets.push_back(0);
    for (const std::int64_t id : ids) {
      const auto i = static_cast<std::size_t>(id);
      RawBlock::Bags& to = out.categorical[0];
      to.ids.insert(to.ids.end(), bags[i].begin(), bags[i].end());
      to.offsets.push_back(static_cast<std::int64_t>(to.ids.size()));
      out.dense[0].push_back(dense[i]);
      out.labels[0].push_back(labels[i]);
      out.sample_ids.push_back(id);
    }
  }

  void select(std::span<const std::string>) override {}

  [[nodiscard]] bool random_access() const override { return true; }

  [[nodiscard]] std::int64_t size() const override { return 4; }

  [[nodiscard]] std::uint64_t fingerprint() const override { return 4; }

  [[nodiscard]] std::optional<double> bayes_ne() const override { return 0.5; }

 private:
  Schema schema_;
};

TEST(Stats, CountsAreThoseCountedByHand) {
  FourSamples source;
  std::int64_t done = 0;
  const Stats stats = compute_stats(source, {}, [&](std::int64_t samples, std::int64_t total) {
    done = samples;
    EXPECT_EQ(total, 4);
  });
  EXPECT_EQ(done, 4);
  EXPECT_EQ(stats.samples, 4);
  EXPECT_EQ(stats.bayes_ne, 0.5);
  const CategoricalStats& genres = stats.categorical.at(0);
  EXPECT_EQ(genres.ids, 6);
  EXPECT_DOUBLE_EQ(genres.missing, 0.25);
  EXPECT_DOUBLE_EQ(genres.mean_length, 1.5);
  EXPECT_EQ(genres.p50_length, 1);
  EXPECT_EQ(genres.p99_length, 3);
  EXPECT_EQ(genres.max_length, 3);
  EXPECT_EQ(genres.min_id, 5);
  EXPECT_EQ(genres.max_id, 9);
  EXPECT_EQ(genres.distinct, 3);
  EXPECT_TRUE(genres.distinct_exact);
  EXPECT_DOUBLE_EQ(genres.top_1, 0.5);
  EXPECT_DOUBLE_EQ(genres.top_10, 1.0);
  EXPECT_DOUBLE_EQ(genres.top_percent, 0.5);
  const DenseStats& price = stats.dense.at(0);
  EXPECT_DOUBLE_EQ(price.missing, 0.25);
  EXPECT_DOUBLE_EQ(price.mean, 2.0);
  EXPECT_DOUBLE_EQ(price.deviation, std::sqrt(2.0 / 3.0));
  EXPECT_DOUBLE_EQ(price.min, 1.0);
  EXPECT_DOUBLE_EQ(price.max, 3.0);
  EXPECT_DOUBLE_EQ(stats.labels.at(0).mean, 0.5);
}

TEST(Stats, TextIsGolden) {
  FourSamples source;
  EXPECT_EQ(stats_text(compute_stats(source)),
            "four samples\n"
            "4 samples read\n"
            "best possible NE 0.5000\n"
            "\n"
            "label    mean\n"
            "click  0.5000\n"
            "\n"
            "categorical  missing  length  p50  p99  max  distinct  top 1  top 10  top 100  "
            "top 1000  top 1%\n"
            "genres         25.0%    1.50    1    3    3         3  50.0%  100.0%   100.0%    "
            "100.0%   50.0%\n"
            "\n"
            "dense  missing  mean  deviation  min  max\n"
            "price    25.0%     2     0.8165    1    3\n");
}

TEST(Stats, TextOfOneSampleIsSingular) {
  FourSamples source;
  StatsOptions first;
  first.max_samples = 1;
  const std::string text = stats_text(compute_stats(source, first));
  EXPECT_NE(text.find("\n1 sample read\n"), std::string::npos) << text;
}

TEST(Stats, JsonHasAVersionAndTheSameNumbers) {
  FourSamples source;
  const auto json = nlohmann::json::parse(stats_json(compute_stats(source)));
  EXPECT_EQ(json.at("version"), 1);
  EXPECT_EQ(json.at("samples"), 4);
  EXPECT_EQ(json.at("bayes_ne"), 0.5);
  EXPECT_EQ(json.at("categorical").at(0).at("distinct_method"), "exact");
  EXPECT_EQ(json.at("categorical").at(0).at("distinct"), 3);
  EXPECT_EQ(json.at("dense").at(0).at("mean"), 2.0);
  EXPECT_EQ(json.at("labels").at(0).at("name"), "click");
}

/// Ids 5 5 7 5 9 7 are rows 1 1 3 1 1 3 of four; twice, by two features that share the table.
TEST(Stats, HotRowsAreCountedAfterMapping) {
  spec::Config config;
  config.tables.resize(2);
  config.tables[0].name = "t";
  config.tables[0].num_embeddings = 4;
  config.tables[1].name = "v";
  config.tables[1].num_embeddings = 4;
  for (const char* name : {"a", "b", "c"}) {
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = name;
    feature.column = "genres";
    feature.table = name[0] == 'c' ? "v" : "t";
    feature.mapping = name[0] == 'c' ? spec::IdMapping::kVocabulary : spec::IdMapping::kModulo;
  }
  config.sparse_features[1].max_length = 1;  // sees 5 5 9
  FourSamples source;
  const Stats stats = compute_stats(source, {.hot_rows = 3, .config = &config});
  ASSERT_EQ(stats.hot_rows.size(), 1U);  // a vocabulary has its own order
  const HotRows& hot = stats.hot_rows[0];
  EXPECT_EQ(hot.table, "t");
  EXPECT_EQ(hot.ids, 9);
  ASSERT_EQ(hot.rows.size(), 2U);
  EXPECT_EQ(hot.rows[0].row, 1);
  EXPECT_DOUBLE_EQ(hot.rows[0].share, 7.0 / 9.0);
  EXPECT_EQ(hot.rows[1].row, 3);
  const auto json = nlohmann::json::parse(stats_json(stats)).at("hot_rows").at(0);
  EXPECT_EQ(json.at("most"), 3);
  EXPECT_EQ(json.at("rows"), (std::vector<std::int64_t>{1, 3}));
  EXPECT_NE(stats_text(stats).find("hot rows of"), std::string::npos);
  EXPECT_EQ(compute_stats(source, {.hot_rows = 1, .config = &config}).hot_rows[0].rows.size(), 1U);
}

/// Feature `name` on the one column, hashed to table t.
spec::SparseFeature hashed(const char* name, const char* salt) {
  spec::SparseFeature feature;
  feature.name = name;
  feature.column = "genres";
  feature.table = "t";
  feature.salt = salt;
  return feature;
}

TEST(Stats, HotRowsAndHashedIdsFollowTheSalt) {
  spec::Config config;
  config.tables.resize(1);
  config.tables[0].name = "t";
  config.tables[0].num_embeddings = std::int64_t{1} << 40;
  config.sparse_features = {hashed("a", "x"), hashed("b", "x")};
  FourSamples source;
  Stats stats = compute_stats(source, {.hot_rows = 9, .config = &config});
  EXPECT_EQ(stats.hot_rows.at(0).rows.size(), 3U);
  EXPECT_EQ(stats.hashed.at(0).distinct, 3);
  config.sparse_features[1].salt = "y";
  stats = compute_stats(source, {.hot_rows = 9, .config = &config});
  EXPECT_EQ(stats.hot_rows.at(0).rows.size(), 6U);
  EXPECT_EQ(stats.hashed.at(0).distinct, 6);
  EXPECT_EQ(stats.hashed.at(0).shared, 0.0);
  EXPECT_EQ(warning_of(stats.hashed.at(0)), "");
}

TEST(Stats, IdsThatShareARowAreCountedAndWarnedOf) {
  spec::Config config;
  config.tables.resize(1);
  config.tables[0].name = "t";
  config.sparse_features = {hashed("a", "")};
  FourSamples source;
  // Ids 5, 7 and 9.
  for (const std::int64_t rows : {1, 2, 3, 4, 5, 7, 100}) {
    config.tables[0].num_embeddings = rows;
    std::map<std::int64_t, int> ids_of_row;
    for (const std::int64_t id : {5, 7, 9}) {
      ++ids_of_row[hash_row(id, hash_salt("t"), rows)];
    }
    double shared = 0;
    for (const auto& [row, ids] : ids_of_row) {
      shared += ids > 1 ? ids / 3.0 : 0.0;
    }
    const Stats stats = compute_stats(source, {.config = &config});
    ASSERT_EQ(stats.hashed.size(), 1U);
    EXPECT_DOUBLE_EQ(stats.hashed[0].shared, shared) << rows << " rows";
    EXPECT_TRUE(stats.hashed[0].exact);
    EXPECT_EQ(warning_of(stats.hashed[0]).empty(), shared <= kManyShared) << rows << " rows";
    const auto json = nlohmann::json::parse(stats_json(stats)).at("hashed").at(0);
    EXPECT_EQ(json.at("table"), "t");
    EXPECT_EQ(json.at("distinct"), 3);
    EXPECT_NE(stats_text(stats).find("hashed to"), std::string::npos);
  }
  config.sparse_features[0].mapping = spec::IdMapping::kModulo;
  EXPECT_TRUE(compute_stats(source, {.config = &config}).hashed.empty()) << "asked for so";
}

TEST(HashedTable, TheWarningNamesTheWaysOut) {
  // 4,082 users of a small public log, hashed to 6,000 rows: half of them share one.
  EXPECT_NEAR(expected_shared(4082, 6000), 0.4935, 0.0005);
  EXPECT_EQ(warning_of({.table = "user", .rows = 6000, .distinct = 4082, .shared = 0.4935}),
            "table 'user': 49 % of its 4,082 distinct ids are hashed to a row that another id has "
            "too (6,000 rows): the model cannot tell them apart. Set num_embeddings to 18294 or "
            "more, with which about 20 % share a row, or mapping: vocabulary with num_embeddings "
            "4083, with which none does");
  EXPECT_NEAR(expected_shared(4082, 18294), kManyShared, 1e-3);
  EXPECT_EQ(expected_shared(1, 1), 0.0);
  EXPECT_EQ(expected_shared(2, 1), 1.0);
}

TEST(HashedTable, EstimatesWhereNotAllIdsWereCounted) {
  spec::Config config;
  config.tables.resize(1);
  config.tables[0].name = "t";
  config.tables[0].num_embeddings = 50'000;
  config.sparse_features = {hashed("a", "")};
  Schema schema;
  schema.categorical = {{"genres", true, false}};
  const auto shared_with = [&](std::int64_t limit) {
    IdCounter counter(limit);
    for (std::int64_t id = 0; id < 30'000; ++id) {
      counter.add(id);
    }
    return hashed_tables(config, schema, [&](std::int64_t) -> const IdCounter& { return counter; })
        .at(0);
  };
  const HashedTable counted = shared_with(100'000);
  const HashedTable estimated = shared_with(1000);
  EXPECT_TRUE(counted.exact);
  EXPECT_FALSE(estimated.exact);
  EXPECT_NEAR(counted.shared, expected_shared(30'000, 50'000), 0.01);
  EXPECT_NEAR(estimated.shared, counted.shared, 0.03);
}

TEST(IdCounter, ListsTheMostFrequentTiesByNumber) {
  IdCounter counter(100);
  for (const std::int64_t id : {9, 4, 7, 4, 9, 1, 7, 4}) {
    counter.add(id);
  }
  std::vector<std::int64_t> ids;
  for (const IdCounter::Count& count : counter.most_frequent(3)) {
    ids.push_back(count.id);
  }
  EXPECT_EQ(ids, (std::vector<std::int64_t>{4, 7, 9}));
  EXPECT_EQ(counter.most_frequent(10).size(), 4U);
}

TEST(Stats, FewerSamplesOnRequest) {
  FourSamples source;
  StatsOptions options;
  options.max_samples = 2;
  const Stats stats = compute_stats(source, options);
  EXPECT_EQ(stats.samples, 2);
  EXPECT_EQ(stats.categorical.at(0).ids, 3);
  EXPECT_FALSE(stats.bayes_ne.has_value());
  options.exact_distinct = 1;
  options.max_samples = -1;
  const Stats estimated = compute_stats(source, options);
  EXPECT_FALSE(estimated.categorical.at(0).distinct_exact);
  EXPECT_NE(stats_text(estimated).find("~3"), std::string::npos);
}

TEST(IdCounter, EstimatesWithinAFewPercent) {
  for (const std::int64_t distinct : {2000, 50'000, 300'000}) {
    IdCounter counter(1000);
    for (std::int64_t i = 0; i < distinct; ++i) {
      const auto id = static_cast<std::int64_t>(mix64(static_cast<std::uint64_t>(i)));
      counter.add(id);
      counter.add(id);
    }
    EXPECT_FALSE(counter.exact());
    EXPECT_NEAR(static_cast<double>(counter.distinct()) / static_cast<double>(distinct), 1.0, 0.04);
    EXPECT_EQ(counter.descending_counts().size(), 1000U);
    EXPECT_EQ(counter.descending_counts().front(), 2);
  }
}

}  // namespace
}  // namespace weft::data
