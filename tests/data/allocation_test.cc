// Once its batches have grown, a loader allocates nothing: neither the reader nor the mapping does.
#include <string>

#include <gtest/gtest.h>

#include "tests/base/count_allocations.h"
#include "tests/data/data_support.h"
#include "weft/data/loader.h"
#include "weft/data/weft_format.h"

namespace weft::data {
namespace {

/// All columns of a Criteo log: hashed, looked up, taken modulo, cut; and logarithms.
spec::Config criteo_config() {
  spec::Config config;
  const auto mappings = {spec::IdMapping::kHash, spec::IdMapping::kModulo,
                         spec::IdMapping::kVocabulary};
  for (int i = 1; i <= 26; ++i) {
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = "C" + std::to_string(i);
    feature.mapping = mappings.begin()[i % 3];
    feature.max_length = i % 5 == 0 ? 1 : 0;
    spec::Table& table = config.tables.emplace_back();
    table.name = feature.name;
    table.num_embeddings = 100000;
  }
  for (int i = 1; i <= 13; ++i) {
    spec::DenseFeature& feature = config.dense_features.emplace_back();
    feature.name = "I" + std::to_string(i);
    feature.transform = spec::DenseTransform::kLog;
  }
  return config;
}

void expect_no_allocation(const spec::Config& config, const LoaderOptions& options, int warm_up) {
  auto source = open_source(config, Split::kTrain);
  const Vocabularies vocabularies = build_vocabularies(*source, config);
  Loader loader(std::move(source), config, vocabularies, options);
  Batch batch;
  for (int i = 0; i < warm_up; ++i) {
    ASSERT_TRUE(loader.next(batch));
  }
  test::watch_allocations();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(loader.next(batch));
  }
  EXPECT_EQ(test::stop_watching().own, 0) << test::describe_allocations();
}

TEST(Allocations, ReadingTextAllocatesNothing) {
  const TemporaryFolder folder;
  spec::Config config = criteo_config();
  config.data.format = spec::DataFormat::kCriteo;
  config.data.path = {folder.write("log.txt", criteo_text(0, 40000))};
  LoaderOptions options;
  options.batch_size = 128;
  options.window = 1000;
  expect_no_allocation(config, options, 100);
  options.shuffle = false;
  expect_no_allocation(config, options, 100);
}

TEST(Allocations, ReadingTheWeftFormatAllocatesNothing) {
  const TemporaryFolder folder;
  spec::Config config = criteo_config();
  config.data.format = spec::DataFormat::kCriteo;
  config.data.path = {folder.write("log.txt", criteo_text(0, 20000))};
  const std::string path = folder.path() + "/log.weft";
  write_weft(*open_source(config, Split::kTrain), path);
  config.data.format = spec::DataFormat::kWeft;
  config.data.path = {path};
  LoaderOptions options;
  options.batch_size = 128;
  options.epochs = 0;
  expect_no_allocation(config, options, 200);
}

TEST(Allocations, ReadingBagsOfAnyLengthAllocatesNothing) {
  const TemporaryFolder folder;
  spec::Config config;
  config.data.format = spec::DataFormat::kSynthetic;
  config.data.synthetic.samples = 5000;
  for (int i = 0; i < 3; ++i) {
    spec::SyntheticColumn& column = config.data.synthetic.columns.emplace_back();
    column.name = "c" + std::to_string(i);
    column.max_length = 1 + 10 * i;
    column.weighted = i == 2;
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = column.name;
    feature.weighted = column.weighted;
    config.tables.emplace_back().name = column.name;
    config.tables.back().num_embeddings = 1000;
  }
  const std::string path = folder.path() + "/log.weft";
  write_weft(*open_source(config, Split::kTrain), path);
  config.data.format = spec::DataFormat::kWeft;
  config.data.path = {path};
  LoaderOptions options;
  options.batch_size = 500;
  options.epochs = 0;
  expect_no_allocation(config, options, 200);
  options.cluster_parts = 4;
  expect_no_allocation(config, options, 200);
}

}  // namespace
}  // namespace weft::data
