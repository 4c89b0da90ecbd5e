// The sparse engine over MPI, where exchanges are not lent: the hash and vectors of one rank.
#include <gtest/gtest.h>

#include "tests/comm/mpi_main.h"
#include "tests/sharding/sparse_run.h"

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
      spec::SparseOptimizer optimizer = make_optimizer(spec::SparseOptimizerKind::kRowWiseAdagrad);
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

TEST(ShardedOverMpi, Heads) {
  for (const spec::Sharding sharding : kShardings) {
    if (sharding == spec::Sharding::kDataParallel) {
      continue;
    }
    const spec::Config config = make_integer_config(sharding);
    spec::Plan plan = planner::make_plan(config, two_hosts(world()->size()));
    plan.tables[1].head = {{0, 1}};
    plan.tables[2].head = {{0, 5}, {40, 41}, {90, 97}};
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

class EncodedOverMpi : public ::testing::TestWithParam<spec::CodecRounding> {};

TEST_P(EncodedOverMpi, GivesTheBitsOfThreads) {
  const auto coded = [](spec::Sharding sharding) {
    spec::Config config =
        make_config(sharding, make_optimizer(spec::SparseOptimizerKind::kRowWiseAdagrad));
    config.codecs = {.forward = spec::CodecFormat::kInt8,
                     .backward = spec::CodecFormat::kFp8E5m2,
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
                         ::testing::Values(spec::CodecRounding::kNearest,
                                           spec::CodecRounding::kStochastic));

TEST(ShardedOverMpi, RowStatisticsAndMaxNorm) {
  for (const spec::Sharding sharding : kShardings) {
    spec::SparseOptimizer optimizer = make_optimizer(spec::SparseOptimizerKind::kRowWiseAdagrad);
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
