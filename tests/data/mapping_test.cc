#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include <gtest/gtest.h>

#include "tests/data/data_support.h"
#include "weft/base/hash.h"
#include "weft/data/feature_mapper.h"
#include "weft/data/modulus.h"

namespace weft::data {
namespace {

using Ids = std::vector<std::int64_t>;

constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinity = std::numeric_limits<float>::infinity();

Schema test_schema() {
  Schema schema;
  schema.labels = {"label", "buy"};
  schema.dense = {"x", "weight"};
  schema.categorical = {{"a", true, true}, {"b", true, false}};
  return schema;
}

/// Three samples: a = [5 6 7] [] [8], b = [5] [9] [].
RawBlock test_block() {
  RawBlock block;
  block.reset(test_schema());
  block.size = 3;
  block.sample_ids = {100, 101, 102};
  block.labels = {{1, 0, 1}, {0, 0, 1}};
  block.dense = {{3, kNan, -1}, {1, 0.5F, 2}};
  block.categorical[0].offsets = {0, 3, 3, 4};
  block.categorical[0].ids = {5, 6, 7, 8};
  block.categorical[0].weights = {0.5F, 1.5F, 2.5F, 3.5F};
  block.categorical[1].offsets = {0, 1, 2, 2};
  block.categorical[1].ids = {5, 9};
  return block;
}

/// Features a and b, both of table t with 10 rows.
spec::Config test_config(spec::IdMapping mapping) {
  spec::Config config;
  for (const char* const name : {"a", "b"}) {
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = name;
    feature.table = "t";
    feature.mapping = mapping;
  }
  config.tables.resize(1);
  config.tables[0].name = "t";
  config.tables[0].num_embeddings = 10;
  return config;
}

Batch map(const spec::Config& config,
          const RawBlock& block,
          const Vocabularies& vocabularies = {}) {
  Batch batch;
  FeatureMapper(config, test_schema(), vocabularies, "test log").map(block, batch);
  batch.sparse.validate();
  return batch;
}

TEST(FeatureMapper, IdentityKeepsIdsAndEmptyBags) {
  const Batch batch = map(test_config(spec::IdMapping::kIdentity), test_block());
  EXPECT_EQ(batch.sparse.keys, (std::vector<std::string>{"a", "b"}));
  EXPECT_EQ(batch.sparse.values, (Ids{5, 6, 7, 8, 5, 9}));
  EXPECT_EQ(batch.sparse.offsets, (Ids{0, 3, 3, 4, 5, 6, 6}));
  EXPECT_TRUE(batch.sparse.weights.empty());
  EXPECT_EQ(batch.sample_ids, (Ids{100, 101, 102}));
}

TEST(FeatureMapper, IdentityRefusesIdsOutOfRange) {
  spec::Config config = test_config(spec::IdMapping::kIdentity);
  config.tables[0].num_embeddings = 9;
  const std::vector<std::string> parts = {"test log", "sample 101", "'b'", "id 9", "'t'", "[0, 9)"};
  expect_error(ErrorCode::kData, parts, [&] { map(config, test_block()); });
  RawBlock block = test_block();
  block.categorical[0].ids[3] = -1;
  expect_error(ErrorCode::kData, {"sample 102", "'a'", "id -1"},
               [&] { map(test_config(spec::IdMapping::kIdentity), block); });
}

TEST(FeatureMapper, HashIsAsStatedAndSharedByTheTable) {
  const Batch batch = map(test_config(spec::IdMapping::kHash), test_block());
  for (std::size_t i = 0; i < 6; ++i) {
    const std::int64_t id = Ids{5, 6, 7, 8, 5, 9}[i];
    const std::uint64_t mixed = mix64(static_cast<std::uint64_t>(id) ^ hash_string("t"));
    EXPECT_EQ(batch.sparse.values[i], static_cast<std::int64_t>(mixed % 10));
  }
  EXPECT_EQ(batch.sparse.values[0], batch.sparse.values[4]);
}

TEST(FeatureMapper, FeaturesOfEqualSaltShareRowsAndOthersDoNot) {
  spec::Config config = test_config(spec::IdMapping::kHash);
  config.tables[0].num_embeddings = std::int64_t{1} << 40;  // no two ids meet by chance
  const Ids of_table = map(config, test_block()).sparse.values;
  const auto salted = [&](const char* a, const char* b) {
    config.sparse_features[0].salt = a;
    config.sparse_features[1].salt = b;
    return map(config, test_block()).sparse.values;
  };
  EXPECT_EQ(salted("t", "t"), of_table) << "the name of the table is the default";
  const Ids equal = salted("x", "x");
  EXPECT_EQ(equal[0], equal[4]) << "id 5 of a and of b";
  EXPECT_NE(equal[0], of_table[0]);
  EXPECT_EQ(equal[0], hash_row(5, hash_salt("x"), config.tables[0].num_embeddings));
  const Ids apart = salted("x", "y");
  EXPECT_EQ(apart[0], equal[0]);
  EXPECT_NE(apart[0], apart[4]);
  EXPECT_NE(apart[5], equal[5]);
}

TEST(Modulus, IsTheRemainderOfEveryNumber) {
  std::uint64_t state = 1;
  const auto draw = [&state] { return mix64(state += 0x9e3779b97f4a7c15ULL); };
  const auto expect_exact = [](std::uint64_t divisor, std::uint64_t x) {
    ASSERT_EQ(Modulus(divisor)(x), x % divisor) << x << " mod " << divisor;
  };
  for (int i = 0; i < 200000; ++i) {
    const std::uint64_t divisor = std::max<std::uint64_t>(1, draw() >> (draw() % 64));
    const std::uint64_t x = draw() >> (draw() % 64);
    expect_exact(divisor, x);
    // Where the quotient changes, and at both ends.
    const std::uint64_t multiple = x / divisor * divisor;
    for (const std::uint64_t near :
         {multiple, multiple - 1, multiple + 1, ~std::uint64_t{0}, std::uint64_t{0}, divisor - 1}) {
      expect_exact(divisor, near);
    }
  }
  for (int bit = 0; bit < 64; ++bit) {
    expect_exact(std::uint64_t{1} << bit, ~std::uint64_t{0});
    expect_exact((std::uint64_t{1} << bit) + 1, ~std::uint64_t{0});
  }
}

// Golden: rows are part of results and of checkpoints, so the hash may never change.
TEST(FeatureMapper, HashIsFrozen) {
  EXPECT_EQ(hash_row(0, hash_salt("C1"), 1000003), 326254);
  EXPECT_EQ(hash_row(0x68fd1e64, hash_salt("C1"), 1000003), 79142);
  EXPECT_EQ(hash_row(-1, hash_salt("film"), 7), 3);
}

TEST(FeatureMapper, ModuloTakesIdsAsUnsigned) {
  RawBlock block = test_block();
  block.categorical[0].ids = {25, -1, 10, 9};
  const Batch batch = map(test_config(spec::IdMapping::kModulo), block);
  EXPECT_EQ(batch.sparse.values, (Ids{5, 5, 0, 9, 5, 9}));  // 2^64 - 1 = ..5 modulo 10
}

TEST(FeatureMapper, VocabularySendsUnknownIdsToRowZero) {
  const Vocabularies vocabularies({Vocabulary("t", {7, 5})});
  const Batch batch = map(test_config(spec::IdMapping::kVocabulary), test_block(), vocabularies);
  EXPECT_EQ(batch.sparse.values, (Ids{2, 0, 1, 0, 2, 0}));
}

TEST(FeatureMapper, VocabularyMustBeThereAndFit) {
  const spec::Config config = test_config(spec::IdMapping::kVocabulary);
  expect_error(ErrorCode::kConfig, {"'a'", "'t'"}, [&] { map(config, test_block()); });
  const Vocabularies large({Vocabulary("t", {1, 2, 3, 4, 5, 6, 7, 8, 9, 10})});
  expect_error(ErrorCode::kConfig, {"'t'", "11", "10"}, [&] { map(config, test_block(), large); });
}

TEST(FeatureMapper, TruncatesIdsAndWeights) {
  spec::Config config = test_config(spec::IdMapping::kIdentity);
  config.sparse_features[0].max_length = 2;
  config.sparse_features[0].weighted = true;
  const Batch batch = map(config, test_block());
  EXPECT_EQ(batch.sparse.values, (Ids{5, 6, 8, 5, 9}));
  EXPECT_EQ(batch.sparse.offsets, (Ids{0, 2, 2, 3, 4, 5, 5}));
  EXPECT_EQ(batch.sparse.weights, (std::vector<float>{0.5F, 1.5F, 3.5F, 1, 1}));
}

TEST(FeatureMapper, NonFiniteIdWeightsAreNamed) {
  spec::Config config = test_config(spec::IdMapping::kIdentity);
  config.sparse_features[0].weighted = true;
  RawBlock block = test_block();
  block.categorical[0].weights[3] = kInfinity;
  expect_error(ErrorCode::kData, {"sample 102", "'a'", "inf"}, [&] { map(config, block); });
}

TEST(FeatureMapper, UnknownColumnsAreNamed) {
  spec::Config config = test_config(spec::IdMapping::kHash);
  config.sparse_features[1].column = "c";
  expect_error(ErrorCode::kConfig, {"'b'", "'c'"}, [&] { map(config, test_block()); });
  config = test_config(spec::IdMapping::kHash);
  config.sparse_features[1].weighted = true;
  expect_error(ErrorCode::kConfig, {"'b'", "no weights"}, [&] { map(config, test_block()); });
  config = test_config(spec::IdMapping::kHash);
  config.sparse_features[1].table = "u";
  expect_error(ErrorCode::kConfig, {"'b'", "'u'"}, [&] { map(config, test_block()); });
  config = test_config(spec::IdMapping::kHash);
  config.dense_features.resize(1);
  config.dense_features[0].name = "y";
  expect_error(ErrorCode::kConfig, {"'y'"}, [&] { map(config, test_block()); });
  config = test_config(spec::IdMapping::kHash);
  config.tasks[0].column = "labels";
  expect_error(ErrorCode::kConfig, {"'click'", "'labels'", "did you mean 'label'"},
               [&] { map(config, test_block()); });
}

spec::Config dense_config(spec::DenseTransform transform) {
  spec::Config config = test_config(spec::IdMapping::kHash);
  config.dense_features.resize(2);
  config.dense_features[0].name = "x";
  config.dense_features[0].transform = transform;
  config.dense_features[1].name = "other";
  config.dense_features[1].column = "weight";
  return config;
}

TEST(FeatureMapper, DenseTransforms) {
  spec::Config config = dense_config(spec::DenseTransform::kLog);
  EXPECT_EQ(map(config, test_block()).dense,
            (std::vector<float>{static_cast<float>(std::log(4.0)), 1, 0, 0.5F, 0, 2}));
  config = dense_config(spec::DenseTransform::kStandard);
  config.dense_features[0].mean = 1;
  config.dense_features[0].scale = 4;
  config.dense_features[0].missing = -9;
  EXPECT_EQ(map(config, test_block()).dense, (std::vector<float>{0.5F, 1, -9, 0.5F, -0.5F, 2}));
  config = dense_config(spec::DenseTransform::kNone);
  EXPECT_EQ(map(config, test_block()).dense, (std::vector<float>{3, 1, 0, 0.5F, -1, 2}));
}

// Small counts come from a table; it must not change a bit.
TEST(FeatureMapper, LogsAreThoseOfTheFormula) {
  RawBlock block = test_block();
  std::vector<float> values;
  for (int i = -5; i < 40000; ++i) {
    values.push_back(static_cast<float>(i));
    values.push_back(static_cast<float>(i) + 0.3F);
  }
  for (const float large : {16383.5F, 16384.0F, 1e6F, 2e9F, 3e38F, 1e-30F, -1e30F, -0.0F}) {
    values.push_back(large);
  }
  while (values.size() % 3 != 0) {
    values.push_back(1.0F);
  }
  for (std::size_t i = 0; i < values.size(); i += 3) {
    std::copy_n(values.begin() + static_cast<std::ptrdiff_t>(i), 3, block.dense[0].begin());
    const Batch batch = map(dense_config(spec::DenseTransform::kLog), block);
    for (std::size_t s = 0; s < 3; ++s) {
      const double x = values[i + s];
      const float expected = x > 0 ? static_cast<float>(std::log1p(x)) : 0.0F;
      ASSERT_EQ(std::bit_cast<std::uint32_t>(batch.dense[2 * s]),
                std::bit_cast<std::uint32_t>(expected))
          << x;
    }
    i += i > 3000 && i < 90000 ? 300 : 0;
  }
}

TEST(FeatureMapper, NonFiniteDenseValuesAreNamed) {
  for (const auto transform :
       {spec::DenseTransform::kNone, spec::DenseTransform::kLog, spec::DenseTransform::kStandard}) {
    RawBlock block = test_block();
    block.dense[0][2] = kInfinity;
    expect_error(ErrorCode::kData, {"test log", "sample 102", "'x'", "inf"},
                 [&] { map(dense_config(transform), block); });
  }
}

TEST(FeatureMapper, SeveralTasksWithWeights) {
  spec::Config config = test_config(spec::IdMapping::kHash);
  config.tasks.resize(2);
  config.tasks[0].weight_column = "weight";
  config.tasks[1].name = "buy";
  config.tasks[1].column = "buy";
  const Batch batch = map(config, test_block());
  EXPECT_EQ(batch.labels, (std::vector<float>{1, 0, 0, 0, 1, 1}));
  EXPECT_EQ(batch.label_weights, (std::vector<float>{1, 1, 0.5F, 1, 2, 1}));
}

TEST(FeatureMapper, BadLabelsAndWeightsAreNamed) {
  spec::Config config = test_config(spec::IdMapping::kHash);
  config.tasks[0].weight_column = "weight";
  for (const float bad : {0.5F, 2.0F, kNan, -1.0F}) {
    RawBlock block = test_block();
    block.labels[0][1] = bad;
    expect_error(ErrorCode::kData, {"sample 101", "'click'", "'label'", "0 or 1"},
                 [&] { map(config, block); });
  }
  for (const float bad : {-0.5F, kNan, kInfinity}) {
    RawBlock block = test_block();
    block.dense[1][2] = bad;
    expect_error(ErrorCode::kData, {"sample 102", "'click'", "'weight'"},
                 [&] { map(config, block); });
  }
}

TEST(FeatureMapper, AnEmptyBlockIsABatchOfNone) {
  RawBlock block;
  block.reset(test_schema());
  for (RawBlock::Bags& bags : block.categorical) {
    bags.offsets = {0};
  }
  const Batch batch = map(dense_config(spec::DenseTransform::kLog), block);
  EXPECT_EQ(batch.sparse.offsets, Ids{0});
  EXPECT_TRUE(batch.dense.empty());
  EXPECT_TRUE(batch.labels.empty());
}

}  // namespace
}  // namespace weft::data
