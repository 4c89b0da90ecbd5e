#include "weft/data/vocabulary.h"

#include <cstring>

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include "tests/data/data_support.h"
#include "weft/base/hash.h"
#include "weft/base/log.h"

namespace weft::data {
namespace {

using Ids = std::vector<std::int64_t>;

/// C1 = sample, C2 = sample % 7 (criteo_line), both of table t.
spec::Config shared_config(const std::string& path) {
  spec::Config config;
  config.data.format = spec::DataFormat::kCriteo;
  config.data.path = {path};
  for (const char* const column : {"C1", "C2"}) {
    spec::SparseFeature& feature = config.sparse_features.emplace_back();
    feature.name = feature.column = column;
    feature.table = "t";
    feature.mapping = spec::IdMapping::kVocabulary;
  }
  config.tables.resize(1);
  config.tables[0].name = "t";
  config.tables[0].num_embeddings = 100;
  return config;
}

TEST(Vocabulary, RowsAreByCountThenId) {
  const TemporaryFolder folder;
  const spec::Config config = shared_config(folder.write("log.txt", criteo_text(0, 16)));
  const auto source = open_source(config, Split::kTrain);
  const Vocabularies built = build_vocabularies(*source, config);
  ASSERT_EQ(built.items().size(), 1U);
  // C2 has 0 and 1 three times, 2..6 twice; C1 adds one to each of 0..15.
  const std::span<const std::int64_t> ids = built.find("t")->ids();
  EXPECT_EQ(Ids(ids.begin(), ids.end()),
            (Ids{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}));
  EXPECT_EQ(built.find("t")->row(0), 1);
  EXPECT_EQ(built.find("t")->row(15), 16);
  EXPECT_EQ(built.find("t")->row(16), 0);
  EXPECT_EQ(built.find("u"), nullptr);
  EXPECT_EQ(build_vocabularies(*source, config), built) << "building again rewinds";
}

TEST(Vocabulary, IsTheSameForAnyNumberOfThreads) {
  const TemporaryFolder folder;
  spec::Config config = shared_config(folder.write("log.txt", criteo_text(0, 40000)));
  config.tables[0].num_embeddings = 100000;
  const auto source = open_source(config, Split::kTrain);
  const Vocabularies expected = build_vocabularies(*source, config);
  ASSERT_EQ(expected.find("t")->rows(), 40001);
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(build_vocabularies(*source, config, &pool), expected) << threads;
  }
  Ids ids(50000);
  std::iota(ids.begin(), ids.end(), -100);
  Ids rows(ids.size());
  expected.find("t")->rows_of(ids, rows);
  for (std::size_t i = 0; i < ids.size(); ++i) {
    ASSERT_EQ(rows[i], expected.find("t")->row(ids[i]));
  }
}

TEST(Vocabulary, RareIdsAreDropped) {
  const TemporaryFolder folder;
  spec::Config config = shared_config(folder.write("log.txt", criteo_text(0, 16)));
  config.sparse_features[0].min_count = config.sparse_features[1].min_count = 4;
  const auto source = open_source(config, Split::kTrain);
  const Vocabularies built = build_vocabularies(*source, config);
  EXPECT_EQ(built.find("t")->rows(), 3);
  EXPECT_EQ(built.find("t")->row(2), 0);
  config.sparse_features[1].min_count = 2;
  expect_error(ErrorCode::kConfig, {"'t'", "min_count 4 and 2", "'C2'"},
               [&] { build_vocabularies(*source, config); });
}

TEST(Vocabulary, KeepsTheMostFrequentAndWarns) {
  const TemporaryFolder folder;
  spec::Config config = shared_config(folder.write("log.txt", criteo_text(0, 16)));
  config.tables[0].num_embeddings = 4;
  const auto source = open_source(config, Split::kTrain);
  std::string warning;
  set_log_sink([&](LogLevel level, std::string_view text) {
    warning += level == LogLevel::kWarning ? text : "";
  });
  const Vocabularies built = build_vocabularies(*source, config);
  set_log_sink(nullptr);
  EXPECT_EQ(built.find("t")->rows(), 4);
  EXPECT_EQ(built.find("t")->row(2), 3);
  EXPECT_EQ(built.find("t")->row(3), 0);
  EXPECT_NE(warning.find("num_embeddings 17"), std::string::npos) << warning;
}

TEST(Vocabulary, IsNotBuiltWhereNothingNeedsIt) {
  const TemporaryFolder folder;
  spec::Config config = shared_config(folder.write("log.txt", criteo_text(0, 16)));
  const auto source = open_source(config, Split::kTrain);
  config.sparse_features[0].mapping = config.sparse_features[1].mapping = spec::IdMapping::kHash;
  EXPECT_FALSE(needs_vocabularies(config));
  EXPECT_TRUE(build_vocabularies(*source, config).empty());
}

TEST(Vocabularies, ImagesAreChecked) {
  const Vocabularies original({Vocabulary("film", {3, -1, 7}), Vocabulary("user", {})});
  const std::vector<std::byte> image = original.serialize();
  EXPECT_EQ(Vocabularies::parse(image, "checkpoint"), original);
  for (std::size_t size = 0; size < image.size(); ++size) {
    expect_error(ErrorCode::kData, {"checkpoint"},
                 [&] { Vocabularies::parse(std::span(image).first(size), "checkpoint"); });
  }
  for (std::size_t at = 0; at < image.size(); ++at) {
    std::vector<std::byte> damaged = image;
    damaged[at] ^= std::byte{0x10};
    expect_error(ErrorCode::kData, {"checkpoint"},
                 [&] { Vocabularies::parse(damaged, "checkpoint"); });
  }
}

TEST(Vocabularies, RefusesNewerImagesAndRepeatedIds) {
  std::vector<std::byte> image = Vocabularies({Vocabulary("t", {1})}).serialize();
  image[8] = std::byte{2};
  expect_error(ErrorCode::kData, {"version 2", "version 1"},
               [&] { Vocabularies::parse(image, "checkpoint"); });
  expect_error(ErrorCode::kData, {"'t'", "id 5 twice"}, [] { Vocabulary("t", {5, 6, 5}); });
}

// The checksum may hold although the contents do not: sizes are still checked.
TEST(Vocabularies, RefusesSizesBeyondTheImage) {
  std::vector<std::byte> image = Vocabularies({Vocabulary("t", {1})}).serialize();
  const std::uint64_t huge = std::uint64_t{1} << 61;
  std::memcpy(image.data() + 8 + 4 + 4 + 4 + 1, &huge, sizeof huge);
  const std::uint64_t hash = hash_bytes(std::span(image).first(image.size() - 8));
  std::memcpy(image.data() + image.size() - 8, &hash, sizeof hash);
  expect_error(ErrorCode::kData, {"end early"}, [&] { Vocabularies::parse(image, "checkpoint"); });
}

RC_GTEST_PROP(VocabularyProperty, RowsAreThePlacesOfIds, ()) {
  const auto ids = *rc::gen::unique<Ids>(rc::gen::arbitrary<std::int64_t>());
  const Vocabulary vocabulary("t", ids);
  for (std::size_t k = 0; k < ids.size(); ++k) {
    RC_ASSERT(vocabulary.row(ids[k]) == static_cast<std::int64_t>(k) + 1);
  }
  const auto other = *rc::gen::arbitrary<std::int64_t>();
  if (std::find(ids.begin(), ids.end(), other) == ids.end()) {
    RC_ASSERT(vocabulary.row(other) == 0);
  }
  RC_ASSERT(Vocabularies::parse(Vocabularies({vocabulary}).serialize(), "x") ==
            Vocabularies({vocabulary}));
}

}  // namespace
}  // namespace weft::data
