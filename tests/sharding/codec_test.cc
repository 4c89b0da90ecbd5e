// Encoded vectors and gradients: who serves what changes no bit, except where partial sums are
// encoded; there numbers that every codec has exactly show that nothing else differs.
#include "weft/kernels/codec.h"

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/coded_run.h"
#include "tests/sharding/sparse_run.h"

namespace weft::sharding {
namespace {

constexpr std::array<CodecFormat, 6> kEncoded = {CodecFormat::kFp16,    CodecFormat::kBf16,
                                                 CodecFormat::kFp8E4m3, CodecFormat::kFp8E5m2,
                                                 CodecFormat::kInt8,    CodecFormat::kInt4};

TEST(Codecs, WholeBagsKeepOneHashOverRanksAndColumnShards) {
  for (const CodecFormat format : kEncoded) {
    const auto run_with = [format](spec::Sharding sharding, int ranks, DeviceKind device) {
      return run(coded(adagrad_job(sharding), format, format),
                 {.ranks = ranks, .device = device, .gradients = Gradients::kRounded});
    };
    const RunResult expected = run_with(spec::Sharding::kTableWise, 1, DeviceKind::kCpu);
    for (const spec::Sharding sharding : {spec::Sharding::kTableWise, spec::Sharding::kColumnWise,
                                          spec::Sharding::kTableColumnWise}) {
      for (const int ranks : {1, 2, 3, 4}) {
        expect_equal(run_with(sharding, ranks, DeviceKind::kCpu), expected,
                     fmt::format("{}, sharding {}, {} ranks", format_name(format),
                                 static_cast<int>(sharding), ranks));
      }
    }
    expect_equal(run_with(spec::Sharding::kColumnWise, 3, DeviceKind::kCheck), expected,
                 format_name(format) + " on the check device");
  }
}

TEST(Codecs, EachDirectionMatters) {
  const auto hash = [](CodecFormat forward, CodecFormat backward) {
    return run(coded(adagrad_job(spec::Sharding::kTableWise), forward, backward),
               {.ranks = 2, .gradients = Gradients::kRounded})
        .hash;
  };
  const auto plain =
      run(adagrad_job(spec::Sharding::kTableWise), {.gradients = Gradients::kRounded}).hash;
  EXPECT_EQ(hash(CodecFormat::kFp32, CodecFormat::kFp32), plain);
  EXPECT_EQ(hash(CodecFormat::kInt8, CodecFormat::kFp32), plain) << "weights know no outputs here";
  EXPECT_NE(hash(CodecFormat::kFp32, CodecFormat::kInt8), plain);
  const auto vectors = [](CodecFormat forward) {
    return run(coded(adagrad_job(spec::Sharding::kTableWise), forward, CodecFormat::kFp32),
               {.ranks = 2})
        .pooled;
  };
  EXPECT_NE(vectors(CodecFormat::kInt8), vectors(CodecFormat::kFp32));
}

/// Integers up to 2048 are fp16's, so partial sums are exact too.
TEST(Codecs, WhatFitsHasTheBitsOfFp32UnderEverySharding) {
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {});
  for (const spec::Sharding sharding : kShardings) {
    for (const int ranks : {1, 2, 4, 5}) {
      expect_equal(run(coded(make_integer_config(sharding), CodecFormat::kFp16, CodecFormat::kFp16),
                       {.ranks = ranks}),
                   expected, fmt::format("{}, {} ranks", static_cast<int>(sharding), ranks));
    }
  }
}

spec::Config at_the_sample(spec::Config config) {
  for (spec::Table& table : config.tables) {
    table.pooled_at = spec::PooledAt::kSample;
  }
  return config;
}

TEST(Codecs, RowsThatTravelOnceAreEncodedToo) {
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {});
  for (const int ranks : {1, 3, 4}) {
    const spec::Config config = at_the_sample(make_integer_config(spec::Sharding::kRowWise));
    expect_equal(run(coded(config, CodecFormat::kFp16, CodecFormat::kFp16), {.ranks = ranks}),
                 expected, fmt::format("{} ranks", ranks));
  }
  // A row has the same bytes for whoever asks, so vectors do not depend on where rows are cut.
  const auto rows = [](int ranks) {
    return run(coded(at_the_sample(adagrad_job(spec::Sharding::kRowWise)), CodecFormat::kInt8,
                     CodecFormat::kFp32),
               {.ranks = ranks, .gradients = Gradients::kRounded});
  };
  expect_equal(rows(4), rows(2), "int8 rows");
}

TEST(Codecs, RowWiseIsTheSameTwice) {
  for (const CodecFormat format : {CodecFormat::kInt8, CodecFormat::kFp8E4m3}) {
    const auto run_on_device = [format](DeviceKind device) {
      return run(coded(adagrad_job(spec::Sharding::kRowWise), format, format),
                 {.ranks = 4, .device = device, .gradients = Gradients::kRounded});
    };
    expect_equal(run_on_device(DeviceKind::kCheck), run_on_device(DeviceKind::kCpu),
                 format_name(format));
  }
}

/// Two ranks, one table of 40 columns on rank 0, one id in every bag.
struct Sent {
  std::int64_t forward = 0;   ///< of rank 0
  std::int64_t backward = 0;  ///< of rank 1
  kernels::CodecClips clips;
};

Sent send_one_table(CodecFormat forward, CodecFormat backward, float gradient) {
  spec::Config config;
  config.tables = {make_table("t", 10, 40)};
  config.tables[0].rank = 0;
  config.sparse_features = {make_feature("f", "t", spec::Pooling::kSum)};
  config = coded(config, forward, backward);
  const std::int64_t samples = 16;
  Sent sent;
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    spec::Plan plan = planner::make_plan(config, 2);
    const auto device = make_device({.threads = 1});
    ShardedEmbeddings embeddings(config, plan, world, *device, {});
    const auto sparse = embeddings.make_step();
    Context ctx{.device = device.get(), .pool = &device->pool()};
    const std::int64_t own = rank_samples(samples, plan.parts, 2, world.rank()).size();
    KeyedJaggedTensor batch;
    batch.batch = own;
    batch.keys = {"f"};
    for (std::int64_t i = 0; i < own; ++i) {
      batch.offsets.push_back(i);
      batch.values.push_back(i % 10);
      batch.weights.push_back(1.0F);
    }
    batch.offsets.push_back(own);
    embeddings.exchange_counts(
        ctx, *sparse, {.sparse = batch, .step = 1, .global_size = samples, .sample_ids = {}},
        std::vector<std::byte>(8));
    embeddings.exchange_ids(ctx, *sparse);
    embeddings.lookup(ctx, *sparse);
    const auto bytes = [&] { return embeddings.vector_traffic().total().bytes; };
    const std::int64_t before = bytes();
    embeddings.output_dist(ctx, *sparse);
    const std::int64_t after = bytes();
    std::fill_n(sparse->gradients().pooled.data, own * 40, gradient);
    embeddings.coalesce(ctx, *sparse);
    embeddings.grad_dist(ctx, *sparse);
    if (world.rank() == 0) {
      sent.forward = after - before;
    } else {
      sent.backward = bytes() - after;
      sent.clips = sparse->codec_clips(0).backward;
    }
  });
  return sent;
}

TEST(Codecs, BytesAreThoseOfTheFormat) {
  for (const CodecFormat format : kEncoded) {
    const Sent sent = send_one_table(format, CodecFormat::kFp32, 1.0F);
    const kernels::Codec codec{static_cast<CodecFormat>(format), 16};
    EXPECT_EQ(sent.forward, 8 * kernels::encoded_bytes(codec, 40)) << format_name(format);
    EXPECT_EQ(sent.backward, 8 * 40 * 4);
    const Sent other = send_one_table(CodecFormat::kFp32, format, 1.0F);
    EXPECT_EQ(other.forward, 8 * 40 * 4);
    EXPECT_EQ(other.backward, 8 * kernels::encoded_bytes(codec, 40)) << format_name(format);
    EXPECT_EQ(other.clips, kernels::CodecClips{});
  }
}

TEST(Codecs, LossesAreCountedWhereTheyAreEncoded) {
  const Sent large = send_one_table(CodecFormat::kFp32, CodecFormat::kFp16, 1e6F);
  EXPECT_EQ(large.clips, (kernels::CodecClips{.non_finite = 0, .clipped = 8 * 40}));
  const Sent bad = send_one_table(CodecFormat::kFp32, CodecFormat::kInt8,
                                  std::numeric_limits<float>::infinity());
  EXPECT_EQ(bad.clips, (kernels::CodecClips{.non_finite = 8 * 40, .clipped = 0}));
}

}  // namespace
}  // namespace weft::sharding
