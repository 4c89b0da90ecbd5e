// The sparse engine over MPI, where exchanges are not lent: the hash and vectors of one rank.
#include <gtest/gtest.h>

#include "tests/comm/mpi_main.h"
#include "tests/sharding/sparse_run.h"
#include "weft/base/at.h"
#include "weft/comm/local/local.h"
#include "weft/sharding/replica_average.h"

namespace weft::sharding {
namespace {

using comm::testing::world;

void expect_as_one_rank(const spec::Config& config, const spec::Config& plain, RunOptions options) {
  RunResult got;
  run_on(*world(), config, options, got);
  if (world()->rank() == 0) {
    options.ranks = 1;
    const RunResult expected = run(plain, options);
    EXPECT_EQ(got.hash, expected.hash);
    EXPECT_EQ(got.pooled, expected.pooled);
    EXPECT_EQ(got.sequences, expected.sequences);
  }
}

TEST(ShardedOverMpi, EveryShardingGivesTheVectorsOfOneRank) {
  for (const spec::Sharding sharding : kShardings) {
    expect_as_one_rank(make_integer_config(sharding),
                       make_integer_config(spec::Sharding::kTableWise),
                       {.sizes = {29, 3, 1, 600, 29}});
  }
}

TEST(ShardedOverMpi, EveryNthRow) {
  for (const spec::Sharding sharding : {spec::Sharding::kRowWise, spec::Sharding::kGridShard}) {
    spec::Config config = make_integer_config(sharding);
    for (spec::Table& table : config.tables) {
      table.row_split = spec::RowSplit::kModulo;
    }
    expect_as_one_rank(config, make_integer_config(spec::Sharding::kTableWise),
                       {.sizes = {29, 3, 1, 600, 29}});
  }
}

TEST(ShardedOverMpi, PooledAtTheSample) {
  for (const spec::Sharding sharding : {spec::Sharding::kRowWise, spec::Sharding::kGridShard}) {
    for (const spec::RowSplit split : {spec::RowSplit::kRange, spec::RowSplit::kModulo}) {
      spec::SparseOptimizer optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
      optimizer.max_norm = 0.5;
      const spec::Config plain = make_config(spec::Sharding::kTableWise, optimizer);
      spec::Config config = plain;
      for (spec::Table& table : config.tables) {
        table.sharding = sharding;
        table.row_split = split;
        table.pooled_at = spec::PooledAt::kSample;
      }
      config.codecs.ids =
          split == spec::RowSplit::kModulo ? spec::IdCodec::kPacked : spec::IdCodec::kNarrow;
      expect_as_one_rank(config, plain,
                         {.sizes = {29, 3, 1, 600, 29}, .gradients = Gradients::kRounded});
    }
  }
}

TEST(ShardedOverMpi, HotRows) {
  for (const spec::Sharding sharding : kShardings) {
    if (sharding == spec::Sharding::kDataParallel) {
      continue;
    }
    const spec::Config config = make_integer_config(sharding);
    spec::Plan plan = planner::make_plan(config, two_hosts(world()->size()));
    plan.tables[1].hot = {{0, 1}};
    plan.tables[2].hot = {{0, 5}, {40, 41}, {90, 97}};
    for (const auto place : {spec::PooledAt::kOwner, spec::PooledAt::kSample}) {
      plan.tables[2].pooled_at = place;
      RunOptions options{.sizes = {29, 3, 1, 600, 29}};
      RunResult got;
      options.plan = &plan;
      run_on(*world(), config, options, got);
      if (world()->rank() == 0) {
        options.plan = nullptr;
        const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), options);
        EXPECT_EQ(got.hash, expected.hash);
        EXPECT_EQ(got.pooled, expected.pooled);
        EXPECT_EQ(got.sequences, expected.sequences);
      }
    }
  }
}

TEST(ShardedOverMpi, TablesOfDifferentGroups) {
  const std::int64_t size = world()->size();
  if (size == 3) {
    GTEST_SKIP() << "the average of 3 is not exact";
  }
  for (const spec::Sharding sharding : kShardings) {
    for (const spec::SyncForm sync : {spec::SyncForm::kTouched, spec::SyncForm::kGradients}) {
      spec::Config config = make_integer_config(sharding);
      config.mesh.groups = size;
      config.mesh.sync = sync;
      config.tables[0].groups = size > 1 ? size / 2 : 1;
      config.tables[2].groups = 1;
      expect_as_one_rank(config, make_integer_config(spec::Sharding::kTableWise),
                         {.sizes = {29, 3, 1, 600, 29}});
    }
  }
}

class EncodedOverMpi : public ::testing::TestWithParam<CodecRounding> {};

TEST_P(EncodedOverMpi, GivesTheBitsOfThreads) {
  const auto coded = [](spec::Sharding sharding) {
    spec::Config config =
        make_config(sharding, make_optimizer(SparseOptimizerKind::kRowWiseAdagrad));
    config.codecs = {.forward = CodecFormat::kInt8,
                     .backward = CodecFormat::kFp8E5m2,
                     .group_size = 16,
                     .rounding = GetParam()};
    return config;
  };
  for (const spec::Sharding sharding : {spec::Sharding::kTableWise, spec::Sharding::kColumnWise}) {
    expect_as_one_rank(coded(sharding), coded(spec::Sharding::kTableWise),
                       {.sizes = {29, 3, 1, 600, 29}, .gradients = Gradients::kRounded});
  }
  // Partial sums of as many ranks as threads.
  RunResult got;
  RunOptions options{.ranks = world()->size(), .sizes = {29, 3, 1, 600, 29}};
  run_on(*world(), coded(spec::Sharding::kRowWise), options, got);
  if (world()->rank() == 0) {
    const RunResult expected = run(coded(spec::Sharding::kRowWise), options);
    EXPECT_EQ(got.hash, expected.hash);
    EXPECT_EQ(got.pooled, expected.pooled);
    EXPECT_EQ(got.sequences, expected.sequences);
  }
}

INSTANTIATE_TEST_SUITE_P(Roundings,
                         EncodedOverMpi,
                         ::testing::Values(CodecRounding::kNearest, CodecRounding::kStochastic));

/// Rows, state and residuals of a replica after syncs of changes that are the group's own.
std::vector<float> after_coded_syncs(comm::Communicator& replicas, CodecFormat format) {
  constexpr std::int64_t kRows = 37;
  spec::Table table;
  table.name = "t";
  table.num_embeddings = kRows;
  table.embedding_dim = 24;
  table.optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
  const auto device = make_device({.threads = 2});
  Context ctx{.device = device.get(), .pool = &device->pool()};
  embedding::TableShard shard(*device, table, Range{0, kRows}, {0, 24}, 1, {});
  ReplicaAverage average(replicas, *device, {&shard},
                         {.seed = 5, .codec = {.format = format, .group = 16}});
  std::vector<float> all;
  for (int step = 1; step <= 4; ++step) {
    for (std::size_t k = 0; k < 2; ++k) {
      const StateItem item = shard.state_items()[k];
      std::vector<float> values(static_cast<std::size_t>(kRows * item.col_end));
      shard.read_state(k, 0, kRows, values.data());
      for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] += 1e-3F * static_cast<float>((i * 7 + 5 * at(replicas.rank()) + at(step)) % 11);
      }
      shard.write_state(k, 0, kRows, 0, item.col_end, values.data());
    }
    average.run(ctx, step);
  }
  for (const StateSource* source : {static_cast<const StateSource*>(&shard),
                                    static_cast<const StateSource*>(average.residuals())}) {
    for (std::size_t k = 0; k < 2; ++k) {
      const std::size_t first = all.size();
      all.resize(first + at(kRows * source->state_items()[k].col_end));
      source->read_state(k, 0, kRows, all.data() + first);
    }
  }
  return all;
}

TEST(CodedAverageOverMpi, GivesTheBitsOfThreads) {
  for (const auto format : {CodecFormat::kInt8, CodecFormat::kBf16}) {
    const std::vector<float> got = after_coded_syncs(*world(), format);
    if (world()->rank() == 0) {
      std::vector<float> expected;
      comm::run_local(world()->size(), {.timeout_s = 60}, [&](comm::Communicator& replicas) {
        std::vector<float> own = after_coded_syncs(replicas, format);
        if (replicas.rank() == 0) {
          expected = std::move(own);
        }
      });
      EXPECT_EQ(got, expected);
    }
  }
}

TEST(ShardedOverMpi, RowStatisticsAndMaxNorm) {
  for (const spec::Sharding sharding : kShardings) {
    spec::SparseOptimizer optimizer = make_optimizer(SparseOptimizerKind::kRowWiseAdagrad);
    optimizer.max_norm = 0.5;
    RunResult got;
    run_on(*world(), make_config(sharding, optimizer), {}, got);
    if (world()->rank() == 0) {
      EXPECT_EQ(got.hash, run(make_config(spec::Sharding::kTableWise, optimizer), {}).hash);
    }
  }
}

}  // namespace
}  // namespace weft::sharding

int main(int argc, char** argv) {
  return weft::comm::testing::run_all_tests(argc, argv);
}
