// Replica groups: the sparse engine over groups x ranks, alone.
#include <algorithm>
#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/sparse_run.h"

namespace weft::sharding {
namespace {

struct Shape {
  int groups;
  int ranks;  ///< of a group
};

constexpr std::array<Shape, 7> kShapes = {{{1, 4}, {2, 1}, {2, 2}, {2, 4}, {3, 2}, {4, 2}, {8, 1}}};

spec::Config with_mesh(spec::Config config, int groups, spec::SyncForm sync) {
  config.mesh.groups = groups;
  config.mesh.sync = sync;
  return config;
}

std::string name_of_shape(const Shape& shape, spec::Sharding sharding) {
  return fmt::format("{} groups of {} ranks, sharding {}", shape.groups, shape.ranks,
                     static_cast<int>(sharding));
}

RunResult run_mesh(const spec::Config& config, const Shape& shape, RunOptions options = {}) {
  options.ranks = shape.groups * shape.ranks;
  return run(config, options);
}

class GroupGradients : public ::testing::TestWithParam<SparseOptimizerKind> {};

// Sums that depend on the order of addition: only the order of one group on N ranks has the bits.
TEST_P(GroupGradients, HaveTheBitsOfTheGroupsPlanOnItsRanks) {
  spec::SparseOptimizer optimizer = make_optimizer(GetParam());
  for (const double max_norm : {0.0, 0.4}) {
    optimizer.max_norm = max_norm;
    for (const spec::Sharding sharding : kShardings) {
      const spec::Config config = make_config(sharding, optimizer);
      for (const Shape& shape : kShapes) {
        // The group's ranks seen as the world: the same hosts, so the same plan.
        spec::Plan plan =
            planner::make_plan(with_mesh(config, shape.groups, spec::SyncForm::kGradients),
                               two_hosts(shape.groups * shape.ranks));
        plan.groups = 1;
        const RunOptions options{
            .ranks = shape.ranks, .samples = 61, .plan = &plan, .gradients = Gradients::kRounded};
        const RunResult expected = run(config, options);
        const RunResult got = run_mesh(with_mesh(config, shape.groups, spec::SyncForm::kGradients),
                                       shape, {.samples = 61, .gradients = Gradients::kRounded});
        EXPECT_EQ(got.hash, expected.hash) << name_of_shape(shape, sharding);
        EXPECT_EQ(got.pooled, expected.pooled) << name_of_shape(shape, sharding);
        EXPECT_EQ(got.sequences, expected.sequences) << name_of_shape(shape, sharding);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, GroupGradients, ::testing::ValuesIn(kSparseOptimizers));

// Integers, and M a power of two: the average of M steps with M-fold gradients is exact.
TEST(ReplicaAverages, OfSgdStepsAreTheStepOfTheWholeBatch) {
  for (const std::int64_t samples : {29, 3}) {
    const RunResult expected =
        run(make_integer_config(spec::Sharding::kTableWise), {.samples = samples});
    for (const spec::SyncForm form : {spec::SyncForm::kDense, spec::SyncForm::kTouched}) {
      for (const spec::Sharding sharding : kShardings) {
        for (const Shape& shape : kShapes) {
          if (shape.groups == 3) {
            continue;
          }
          const RunResult got =
              run_mesh(with_mesh(make_integer_config(sharding), shape.groups, form), shape,
                       {.samples = samples});
          EXPECT_EQ(got.hash, expected.hash) << name_of_shape(shape, sharding);
          EXPECT_EQ(got.pooled, expected.pooled) << name_of_shape(shape, sharding);
        }
      }
    }
  }
}

TEST(ReplicaAverages, PooledAtTheSampleToo) {
  const RunResult expected = run(make_integer_config(spec::Sharding::kTableWise), {});
  for (const spec::Sharding sharding : {spec::Sharding::kRowWise, spec::Sharding::kGridShard}) {
    for (const spec::SyncForm form : {spec::SyncForm::kDense, spec::SyncForm::kGradients}) {
      spec::Config config = make_integer_config(sharding);
      for (spec::Table& table : config.tables) {
        table.pooled_at = spec::PooledAt::kSample;
      }
      const RunResult got = run_mesh(with_mesh(config, 2, form), {2, 4});
      EXPECT_EQ(got.hash, expected.hash);
      EXPECT_EQ(got.pooled, expected.pooled);
    }
  }
}

// run() compares all replicas bit by bit.
TEST(ReplicaAverages, TouchedRowsGiveTheBitsOfAllRows) {
  for (const spec::RowDType dtype : {spec::RowDType::kFp32, spec::RowDType::kBf16,
                                     spec::RowDType::kFp16, spec::RowDType::kSplitBf16}) {
    for (const auto kind : {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
                            SparseOptimizerKind::kAdam}) {
      for (const std::int64_t every : {1, 2}) {
        for (const Shape& shape : {Shape{2, 2}, Shape{3, 2}, Shape{4, 1}}) {
          spec::Config config = make_config(spec::Sharding::kColumnWise, make_optimizer(kind));
          config.mesh.sync_every = every;
          for (spec::Table& table : config.tables) {
            table.dtype = dtype;
          }
          const RunOptions options{.steps = 5, .gradients = Gradients::kRounded};
          const RunResult dense =
              run_mesh(with_mesh(config, shape.groups, spec::SyncForm::kDense), shape, options);
          const RunResult touched =
              run_mesh(with_mesh(config, shape.groups, spec::SyncForm::kTouched), shape, options);
          EXPECT_EQ(touched.hash, dense.hash) << name_of_shape(shape, spec::Sharding::kColumnWise);
          EXPECT_EQ(touched.pooled, dense.pooled);
        }
      }
    }
  }
}

/// The rows, widened, of each shard and copy of hot rows of both groups of one rank after one
/// update, before any sync: both had the same samples and gradients, as in places of the two halves
/// of a batch.
std::array<std::vector<std::vector<float>>, 2> rows_of_groups(spec::Config config,
                                                              spec::Sharding of_few) {
  config.tables[1].sharding = of_few;
  spec::Plan plan = planner::make_plan(config, planner::RankLayout{.ranks = 2});
  plan.parts = kParts;
  plan.tables[2].hot = {{0, 5}};
  std::array<std::vector<std::vector<float>>, 2> rows;
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    constexpr std::int64_t kSamples = 64;
    const auto device = make_device({});
    ShardedEmbeddings embeddings(config, plan, world, *device, {});
    const auto sparse = embeddings.make_step();
    const auto stream = device->make_stream({.name = "test"});
    const KeyedJaggedTensor batch = make_batch(config, 1, {0, kSamples / 2});
    const BatchView view{.sparse = batch, .step = 1, .global_size = kSamples, .sample_ids = {}};
    const std::vector<std::byte> control(8);
    const Stage body = [&](Context& ctx) {
      embeddings.exchange_counts(ctx, *sparse, view, control);
      embeddings.exchange_ids(ctx, *sparse);
      embeddings.lookup(ctx, *sparse);
      embeddings.output_dist(ctx, *sparse);
      fill_gradients(*sparse, batch, 1, 0, Gradients::kRounded);
      embeddings.coalesce(ctx, *sparse);
      embeddings.grad_dist(ctx, *sparse);
      embeddings.update(ctx, *sparse,
                        {.learning_rate_factor = 1.0, .step = 1, .seed = config.seed});
      auto held = embeddings.shards();
      const auto hot = embeddings.hot_shards();
      held.insert(held.end(), hot.begin(), hot.end());
      for (const embedding::TableShard* shard : held) {
        const StateItem item = shard->state_items().front();
        const bool narrow = item.dtype == DType::kBFloat16;
        std::vector<BFloat16> halves(static_cast<std::size_t>(item.rows * item.cols));
        std::vector<float> values(halves.size());
        shard->read_state(0, 0, item.rows,
                          narrow ? static_cast<void*>(halves.data()) : values.data());
        if (narrow) {
          std::transform(halves.begin(), halves.end(), values.begin(),
                         [](BFloat16 half) { return to_float(half); });
        }
        rows[static_cast<std::size_t>(world.rank())].push_back(std::move(values));
      }
    };
    stream->enqueue(body);
    stream->synchronize();
  });
  return rows;
}

// Tables one, few (data_parallel) and many, and the hot rows of many.
TEST(ReplicaAverages, GroupsThatAreAveragedRoundWithOtherWords) {
  for (const spec::RowDType dtype : {spec::RowDType::kFp32, spec::RowDType::kBf16}) {
    for (const spec::SyncForm form : {spec::SyncForm::kDense, spec::SyncForm::kGradients}) {
      spec::Config config =
          make_config(spec::Sharding::kTableWise, make_optimizer(SparseOptimizerKind::kSgd));
      for (spec::Table& table : config.tables) {
        table.dtype = dtype;
      }
      config.mesh.sync_every = form == spec::SyncForm::kDense ? 2 : 1;
      const auto rows = rows_of_groups(with_mesh(config, 2, form), spec::Sharding::kDataParallel);
      ASSERT_EQ(rows[0].size(), 4U);
      const bool apart = dtype == spec::RowDType::kBf16 && form == spec::SyncForm::kDense;
      const std::string what =
          fmt::format("dtype {}, sync {}", static_cast<int>(dtype), spec::to_string(form));
      EXPECT_EQ(rows[0][0] != rows[1][0], apart) << what << ", table one";
      EXPECT_EQ(rows[0][1], rows[1][1]) << what << ", data_parallel";
      EXPECT_EQ(rows[0][2] != rows[1][2], apart) << what << ", table many";
      EXPECT_EQ(rows[0][3], rows[1][3]) << what << ", hot rows";
    }
  }
}

TEST(ReplicaAverages, ReplicasPartBetweenSyncs) {
  spec::Config config =
      make_config(spec::Sharding::kTableWise, make_optimizer(SparseOptimizerKind::kSgd));
  const RunResult every_step =
      run_mesh(with_mesh(config, 2, spec::SyncForm::kDense), {2, 2}, {.steps = 4});
  config.mesh.sync_every = 2;
  const RunResult every_other =
      run_mesh(with_mesh(config, 2, spec::SyncForm::kDense), {2, 2}, {.steps = 4});
  EXPECT_NE(every_other.pooled, every_step.pooled);
}

}  // namespace
}  // namespace weft::sharding
