// What is not finite before it is encoded is not finite where it arrives, with every codec.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"

namespace weft::sharding {
namespace {

constexpr std::int64_t kBagRows = 10;
constexpr std::int64_t kBagCols = 40;
constexpr std::int64_t kBagSamples = 20;
constexpr std::int64_t kBadRow = 3;
constexpr std::int64_t kBadCol = 20;
constexpr std::int64_t kBadSample = 6;

constexpr std::array<float, 3> kBad = {std::numeric_limits<float>::quiet_NaN(),
                                       std::numeric_limits<float>::infinity(),
                                       -std::numeric_limits<float>::infinity()};

struct Scheme {
  spec::Sharding sharding;
  spec::PooledAt pooled_at;
};

constexpr std::array<Scheme, 4> kSchemes = {{{spec::Sharding::kTableWise, spec::PooledAt::kOwner},
                                             {spec::Sharding::kColumnWise, spec::PooledAt::kOwner},
                                             {spec::Sharding::kRowWise, spec::PooledAt::kOwner},
                                             {spec::Sharding::kRowWise, spec::PooledAt::kSample}}};

/// A bag of two rows and a sequence of one per sample.
std::vector<std::int64_t> bag_of(std::int64_t sample) {
  return {sample % kBagRows, (sample + 1) % kBagRows};
}

std::int64_t row_of_sequence(std::int64_t sample) {
  return sample % kBagRows;
}

spec::Config make_job(const Scheme& scheme, const spec::Codecs& codecs) {
  spec::Config config;
  config.seed = 3;
  config.codecs = codecs;
  config.tables = {make_table("t", kBagRows, kBagCols)};
  config.tables[0].sharding = scheme.sharding;
  config.tables[0].pooled_at = scheme.pooled_at;
  config.tables[0].optimizer = make_optimizer(SparseOptimizerKind::kSgd);
  config.sparse_features = {make_feature("bag", "t", spec::Pooling::kSum),
                            make_feature("sequence", "t", spec::Pooling::kNone)};
  return config;
}

KeyedJaggedTensor bags_and_sequences_of(Range samples) {
  KeyedJaggedTensor batch;
  batch.batch = samples.size();
  batch.keys = {"bag", "sequence"};
  batch.offsets = {0};
  for (std::int64_t i = samples.begin; i < samples.end; ++i) {
    const std::vector<std::int64_t> bag = bag_of(i);
    batch.values.insert(batch.values.end(), bag.begin(), bag.end());
    batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
  }
  for (std::int64_t i = samples.begin; i < samples.end; ++i) {
    batch.values.push_back(row_of_sequence(i));
    batch.offsets.push_back(static_cast<std::int64_t>(batch.values.size()));
  }
  return batch;
}

void write_number(ShardedEmbeddings& embeddings, std::int64_t row, std::int64_t col, float value) {
  for (embedding::TableShard* shard : embeddings.shards()) {
    const StateItem item = shard->state_items().front();
    if (item.held().contains(row) && item.col_begin <= col && col < item.col_end) {
      shard->write_state(0, row, 1, col, col + 1, &value);
    }
  }
}

bool all_finite(const float* values, std::int64_t count) {
  return std::all_of(values, values + count, [](float x) { return std::isfinite(x); });
}

/// Whether every rank's vectors are finite where they should be and nowhere else.
void check_vectors(SparseStep& sparse, Range samples, const std::string& what) {
  const FeatureMatrices& outputs = sparse.outputs();
  for (std::int64_t b = 0; b < samples.size(); ++b) {
    const std::int64_t sample = samples.begin + b;
    const std::vector<std::int64_t> bag = bag_of(sample);
    const bool bad = std::find(bag.begin(), bag.end(), kBadRow) != bag.end();
    const float* const pooled = outputs.pooled.row(b);
    EXPECT_EQ(std::isfinite(pooled[kBadCol]), !bad) << what << ", bag of sample " << sample;
    const bool bad_row = row_of_sequence(sample) == kBadRow;
    const float* const sequence = outputs.sequences[1].row(b);
    EXPECT_EQ(std::isfinite(sequence[kBadCol]), !bad_row) << what << ", row of sample " << sample;
    if (!bad) {
      EXPECT_TRUE(all_finite(pooled, kBagCols)) << what << ", bag of sample " << sample;
    }
    if (!bad_row) {
      EXPECT_TRUE(all_finite(sequence, kBagCols)) << what << ", row of sample " << sample;
    }
  }
}

struct Found {
  std::int64_t encoded = 0;  ///< not finite before they were, over all ranks
  std::int64_t overflow = 0;
};

enum class Direction { kForward, kBackward };

/// One step on three ranks with one number that is not finite: of a row, or of a gradient.
Found step_with(const Scheme& scheme,
                const spec::Codecs& codecs,
                Direction direction,
                float bad,
                const std::string& what) {
  const spec::Config config = make_job(scheme, codecs);
  Found found;
  comm::run_local(3, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const spec::Plan plan = planner::make_plan(config, 3);
    const auto device = make_device({.threads = 1});
    ShardedEmbeddings embeddings(config, plan, world, *device, {});
    const auto sparse = embeddings.make_step();
    Context ctx{.device = device.get(), .pool = &device->pool()};
    if (direction == Direction::kForward) {
      write_number(embeddings, kBadRow, kBadCol, bad);
    }
    const Range samples = rank_samples(kBagSamples, plan.parts, 3, world.rank());
    const KeyedJaggedTensor batch = bags_and_sequences_of(samples);
    embeddings.exchange_counts(
        ctx, *sparse, {.sparse = batch, .step = 1, .global_size = kBagSamples, .sample_ids = {}},
        std::vector<std::byte>(8));
    embeddings.exchange_ids(ctx, *sparse);
    embeddings.lookup(ctx, *sparse);
    embeddings.output_dist(ctx, *sparse);
    if (direction == Direction::kForward) {
      check_vectors(*sparse, samples, what);
    } else {
      FeatureMatrices& gradients = sparse->gradients();
      std::fill_n(gradients.pooled.data, samples.size() * kBagCols, 0.5F);
      std::fill_n(gradients.sequences[1].data, samples.size() * kBagCols, 0.25F);
      if (samples.begin <= kBadSample && kBadSample < samples.end) {
        gradients.pooled.row(kBadSample - samples.begin)[kBadCol] = bad;
      }
      embeddings.coalesce(ctx, *sparse);
      embeddings.grad_dist(ctx, *sparse);
      embeddings.update(ctx, *sparse,
                        {.learning_rate_factor = 1.0, .step = 1, .seed = config.seed});
    }
    const TableClips clips = sparse->codec_clips(0);
    std::array<std::int64_t, 2> counts = {clips.forward.non_finite + clips.backward.non_finite,
                                          embeddings.overflow().count};
    world.all_reduce(ctx, counts.data(), 2);
    if (world.rank() == 0) {
      found = {counts[0], counts[1]};
    }
    // A gradient that is not finite changes no row.
    for (const embedding::TableShard* shard : embeddings.shards()) {
      const StateItem item = shard->state_items().front();
      std::vector<float> rows(
          static_cast<std::size_t>(item.held().size() * (item.col_end - item.col_begin)));
      shard->read_state(0, item.row_begin, item.held().size(), rows.data());
      EXPECT_EQ(direction == Direction::kForward ||
                    all_finite(rows.data(), static_cast<std::int64_t>(rows.size())),
                true)
          << what;
    }
  });
  return found;
}

class NonFinite : public ::testing::TestWithParam<CodecFormat> {
 protected:
  /// Calls body(scheme, rounding, bad, what) for all of them.
  template <typename Body>
  static void for_all(const Body& body) {
    for (const Scheme& scheme : kSchemes) {
      for (const auto rounding : {CodecRounding::kNearest, CodecRounding::kStochastic}) {
        for (const float bad : kBad) {
          body(scheme, rounding, bad,
               fmt::format("{}, sharding {}, pooled at {}, rounding {}, {}", to_string(GetParam()),
                           static_cast<int>(scheme.sharding), static_cast<int>(scheme.pooled_at),
                           static_cast<int>(rounding), bad));
        }
      }
    }
  }
};

TEST_P(NonFinite, RowsArriveSo) {
  for_all([](const Scheme& scheme, CodecRounding rounding, float bad, const std::string& what) {
    const spec::Codecs codecs{.forward = GetParam(), .group_size = 16, .rounding = rounding};
    const Found found = step_with(scheme, codecs, Direction::kForward, bad, what);
    EXPECT_EQ(found.encoded > 0, GetParam() != CodecFormat::kFp32) << what;
  });
}

TEST_P(NonFinite, GradientsArriveSoAndChangeNothing) {
  for_all([](const Scheme& scheme, CodecRounding rounding, float bad, const std::string& what) {
    const spec::Codecs codecs{.backward = GetParam(), .group_size = 16, .rounding = rounding};
    const Found found = step_with(scheme, codecs, Direction::kBackward, bad, what);
    EXPECT_EQ(found.encoded > 0, GetParam() != CodecFormat::kFp32) << what;
    EXPECT_GE(found.overflow, 2) << "the bag has two rows: " << what;
  });
}

INSTANTIATE_TEST_SUITE_P(Formats,
                         NonFinite,
                         ::testing::Values(CodecFormat::kFp32,
                                           CodecFormat::kFp16,
                                           CodecFormat::kBf16,
                                           CodecFormat::kFp8E4m3,
                                           CodecFormat::kFp8E5m2,
                                           CodecFormat::kInt8,
                                           CodecFormat::kInt4),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace weft::sharding
