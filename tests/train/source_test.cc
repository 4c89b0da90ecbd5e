// A job that trains on a source of its caller's.
#include "weft/data/source.h"

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/train/job_fixture.h"
#include "weft/base/hash.h"

namespace weft::train {
namespace {

/// All samples of another source in memory, with every label of sample ids in `flipped` turned
/// over.
class MemorySource final : public data::Source {
 public:
  MemorySource(std::unique_ptr<data::Source> from, Range flipped) : schema_(from->schema()) {
    const std::int64_t size = from->load(0, from->size());
    std::vector<std::int64_t> ids(static_cast<std::size_t>(size));
    for (std::int64_t i = 0; i < size; ++i) {
      ids[static_cast<std::size_t>(i)] = i;
    }
    from->read(ids, all_);
    for (std::vector<float>& labels : all_.labels) {
      for (std::int64_t i = flipped.begin; i < flipped.end; ++i) {
        labels[static_cast<std::size_t>(i)] = 1.0F - labels[static_cast<std::size_t>(i)];
      }
    }
  }

  [[nodiscard]] const data::Schema& schema() const override { return schema_; }

  [[nodiscard]] std::string describe() const override { return "samples in memory"; }

  std::int64_t load(std::int64_t first, std::int64_t count) override {
    return std::max<std::int64_t>(0, std::min(count, all_.size - first));
  }

  void read(std::span<const std::int64_t> sample_ids, data::RawBlock& out) override {
    out.reset(schema_);
    out.size = static_cast<std::int64_t>(sample_ids.size());
    out.sample_ids.assign(sample_ids.begin(), sample_ids.end());
    copy(all_.dense, sample_ids, out.dense);
    copy(all_.labels, sample_ids, out.labels);
    for (std::size_t c = 0; c < all_.categorical.size(); ++c) {
      const data::RawBlock::Bags& from = all_.categorical[c];
      data::RawBlock::Bags& to = out.categorical[c];
      to.offsets.assign(1, 0);
      for (const std::int64_t id : sample_ids) {
        const auto sample = static_cast<std::size_t>(id);
        for (std::int64_t i = from.offsets[sample]; i < from.offsets[sample + 1]; ++i) {
          to.ids.push_back(from.ids[static_cast<std::size_t>(i)]);
          if (!from.weights.empty()) {
            to.weights.push_back(from.weights[static_cast<std::size_t>(i)]);
          }
        }
        to.offsets.push_back(static_cast<std::int64_t>(to.ids.size()));
      }
    }
  }

  void select(std::span<const std::string> /*columns*/) override {}

  [[nodiscard]] bool random_access() const override { return true; }

  [[nodiscard]] std::int64_t size() const override { return all_.size; }

  [[nodiscard]] std::uint64_t fingerprint() const override { return 17; }

 private:
  static void copy(const std::vector<std::vector<float>>& from,
                   std::span<const std::int64_t> sample_ids,
                   std::vector<std::vector<float>>& to) {
    for (std::size_t c = 0; c < from.size(); ++c) {
      for (const std::int64_t id : sample_ids) {
        to[c].push_back(from[c][static_cast<std::size_t>(id)]);
      }
    }
  }

  data::Schema schema_;
  data::RawBlock all_;
};

JobOptions in_memory(Range flipped) {
  JobOptions options = job_options(make_job());
  options.open_source = [flipped](const spec::Config& config, data::Split split) {
    auto configured = data::open_source(config, split);
    return configured == nullptr
               ? nullptr
               : std::make_unique<MemorySource>(std::move(configured),
                                                split == data::Split::kTrain ? flipped : Range{});
  };
  return options;
}

TEST(SourceOfTheCaller, TrainsAndEvaluatesWithTheBitsOfItsSamples) {
  const Summary expected = train_on(2, job_options(make_job()));
  const Summary got = train_on(2, in_memory({0, 0}));
  EXPECT_EQ(got.weights_hash, expected.weights_hash);
  EXPECT_EQ(got.state_hash, expected.state_hash);
  ASSERT_TRUE(got.eval.has_value() && expected.eval.has_value());
  EXPECT_EQ(got.eval->tasks.front().ne, expected.eval->tasks.front().ne);
}

TEST(SourceOfTheCaller, IsWhatIsRead) {
  EXPECT_NE(train_on(2, in_memory({0, 60})).weights_hash,
            train_on(2, in_memory({0, 0})).weights_hash);
}

}  // namespace
}  // namespace weft::train
