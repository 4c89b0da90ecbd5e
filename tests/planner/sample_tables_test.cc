#include "weft/planner/sample_tables.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/hash.h"

namespace weft::planner {
namespace {

constexpr std::array<std::uint64_t, 3> kSeeds = {1, 2, 3};

/// Shares of ids by class, as published.
constexpr std::array<double, 17> kShares = {.069, .044, .068, .101, .121, .104, .073, .058, .052,
                                            .050, .049, .048, .048, .043, .031, .023, .019};

TEST(ProductionTables, TotalsAreAsPublished) {
  for (const std::uint64_t seed : kSeeds) {
    const std::vector<TableUse> tables = production_tables(seed);
    const TableTotals sum = totals(tables);
    EXPECT_EQ(sum.tables, 856);
    EXPECT_EQ(sum.ids_per_sample, 13535.0);
    EXPECT_NEAR(sum.mean_dim, 93.0, 0.1);
    // Log-uniform in [1e3, 1e8): mean 8.69 million with a standard deviation of 20 million.
    EXPECT_NEAR(static_cast<double>(sum.rows) / 856, 8.69e6, 2e6);
    const double params = static_cast<double>(sum.parameters);
    EXPECT_GT(params, 0.5e12);
    EXPECT_LT(params, 0.9e12);
  }
}

TEST(ProductionTables, EachTableIsInItsRange) {
  for (const std::uint64_t seed : kSeeds) {
    std::array<int, 5> decades{};
    int ones = 0;
    int long_ones = 0;
    double longest = 0.0;
    for (const TableUse& use : production_tables(seed)) {
      ASSERT_GE(use.rows, 1'000);
      ASSERT_LT(use.rows, 100'000'000);
      ASSERT_GE(use.mean_length, 1.0);
      ASSERT_LE(use.mean_length, 200.0);
      ASSERT_GE(static_cast<double>(use.max_length), use.mean_length);
      ASSERT_EQ(use.mean_length * 64,
                static_cast<double>(static_cast<std::int64_t>(use.mean_length * 64)));
      ones += use.mean_length < 1.5 ? 1 : 0;
      long_ones += use.mean_length > 100 ? 1 : 0;
      longest = std::max(longest, use.mean_length);
      std::size_t decade = 0;
      for (std::int64_t rows = use.rows / 10'000; rows > 0; rows /= 10) {
        ++decade;
      }
      ++decades.at(decade);
    }
    for (const int count : decades) {
      EXPECT_NEAR(count, 856 / 5, 50);  // four standard deviations of a binomial
    }
    EXPECT_GT(ones, 856 / 4);
    EXPECT_GT(long_ones, 10);
    EXPECT_LT(long_ones, 70);
    EXPECT_GT(longest, 150.0);
  }
}

TEST(ProductionTables, ReuseClassesHaveTheirSharesOfIds) {
  for (const std::uint64_t seed : kSeeds) {
    std::array<double, 17> ids{};
    int impossible = 0;
    for (const TableUse& use : production_tables(seed)) {
      ids.at(static_cast<std::size_t>(use.reuse_class)) += use.mean_length;
      // Fewer rows than ids mean that a row is looked up more than once.
      const double least = 65536.0 * use.mean_length / static_cast<double>(use.rows);
      impossible += least > static_cast<double>(std::int64_t{1} << use.reuse_class) ? 1 : 0;
      EXPECT_DOUBLE_EQ(use.zipf, 0.6 + 0.05 * static_cast<double>(use.reuse_class));
    }
    for (std::size_t c = 0; c < ids.size(); ++c) {
      EXPECT_NEAR(ids[c] / 13535.0, kShares[c], 0.01) << "class " << c << ", seed " << seed;
    }
    EXPECT_LE(impossible, 856 / 20);
  }
}

/// Every number of a set, so that another machine's can be compared.
std::uint64_t fingerprint(const std::vector<TableUse>& tables) {
  std::string text;
  for (const TableUse& use : tables) {
    text += fmt::format("{} {} {} {} {} {} {}\n", use.name, use.rows, use.dim,
                        static_cast<std::int64_t>(64 * use.mean_length), use.max_length,
                        static_cast<std::int64_t>(100 * use.zipf + 0.5), use.reuse_class);
  }
  return hash_string(text);
}

TEST(TableSets, SameOnEveryMachineAndOtherForAnotherSeed) {
  EXPECT_EQ(fingerprint(production_tables(1)), 12293877232179362052U);
  EXPECT_EQ(fingerprint(adversarial_tables(1)), 7229214933350151146U);
  EXPECT_NE(fingerprint(production_tables(1)), fingerprint(production_tables(2)));
  EXPECT_NE(fingerprint(adversarial_tables(1)), fingerprint(adversarial_tables(2)));
}

TEST(TableSets, PublicOnes) {
  const TableTotals kaggle = totals(criteo_kaggle_tables());
  EXPECT_EQ(kaggle.tables, 26);
  EXPECT_EQ(kaggle.rows, 33'762'577);
  EXPECT_EQ(kaggle.ids_per_sample, 26);
  EXPECT_EQ(kaggle.mean_dim, 16);
  const TableTotals mlperf = totals(mlperf_dcnv2_tables());
  EXPECT_EQ(mlperf.tables, 26);
  EXPECT_EQ(mlperf.rows, 204'184'588);
  EXPECT_EQ(mlperf.parameters, 204'184'588 * std::int64_t{128});
  EXPECT_EQ(mlperf.ids_per_sample, 214);
}

TEST(AdversarialTables, HaveWhatTheyAreMadeFor) {
  for (const std::uint64_t seed : kSeeds) {
    const std::vector<TableUse> tables = adversarial_tables(seed);
    const TableTotals sum = totals(tables);
    EXPECT_EQ(sum.tables, 256);
    double longest = 0.0;
    std::int64_t giants = 0;
    std::set<std::string> names;
    for (const TableUse& use : tables) {
      longest = std::max(longest, use.mean_length);
      giants += use.rows >= 800'000'000 ? 1 : 0;
      names.insert(use.name);
    }
    EXPECT_EQ(giants, 4);
    EXPECT_EQ(names.size(), 256U);
    EXPECT_NEAR(longest / sum.ids_per_sample, 0.2, 0.001);
  }
}

TEST(TableSets, AsAConfigurationNamesThem) {
  const TableUse many{
      .name = "a", .rows = 50, .dim = 32, .mean_length = 7.25, .max_length = 29, .zipf = 0.7};
  EXPECT_EQ(to_table(many).num_embeddings, 50);
  EXPECT_EQ(to_table(many).embedding_dim, 32);
  EXPECT_EQ(to_feature(many).table, "a");
  EXPECT_EQ(to_feature(many).max_length, 29);
  EXPECT_EQ(to_column(many).cardinality, 50);
  EXPECT_EQ(to_column(many).min_length, 1);
  EXPECT_EQ(to_column(many).max_length, 14);  // mean 7.5
  EXPECT_EQ(to_column(many).zipf, 0.7);
  const TableUse fixed{.name = "b", .rows = 5, .dim = 16, .mean_length = 3, .max_length = 3};
  EXPECT_EQ(to_column(fixed).min_length, 3);
  EXPECT_EQ(to_column(fixed).max_length, 3);
}

}  // namespace
}  // namespace weft::planner
