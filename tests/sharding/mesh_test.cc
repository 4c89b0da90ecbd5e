// Replica groups: the sparse engine over groups x ranks, alone.
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

std::string name(const Shape& shape, spec::Sharding sharding) {
  return fmt::format("{} groups of {} ranks, sharding {}", shape.groups, shape.ranks,
                     static_cast<int>(sharding));
}

RunResult run_mesh(const spec::Config& config, const Shape& shape, RunOptions options = {}) {
  options.ranks = shape.groups * shape.ranks;
  return run(config, options);
}

class GroupGradients : public ::testing::TestWithParam<spec::SparseOptimizerKind> {};

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
        EXPECT_EQ(got.hash, expected.hash) << name(shape, sharding);
        EXPECT_EQ(got.pooled, expected.pooled) << name(shape, sharding);
        EXPECT_EQ(got.sequences, expected.sequences) << name(shape, sharding);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers,
                         GroupGradients,
                         ::testing::Values(spec::SparseOptimizerKind::kSgd,
                                           spec::SparseOptimizerKind::kAdagrad,
                                           spec::SparseOptimizerKind::kRowWiseAdagrad,
                                           spec::SparseOptimizerKind::kAdam,
                                           spec::SparseOptimizerKind::kRowWiseAdam));

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
          EXPECT_EQ(got.hash, expected.hash) << name(shape, sharding);
          EXPECT_EQ(got.pooled, expected.pooled) << name(shape, sharding);
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
    for (const auto kind :
         {spec::SparseOptimizerKind::kSgd, spec::SparseOptimizerKind::kRowWiseAdagrad,
          spec::SparseOptimizerKind::kAdam}) {
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
          EXPECT_EQ(touched.hash, dense.hash) << name(shape, spec::Sharding::kColumnWise);
          EXPECT_EQ(touched.pooled, dense.pooled);
        }
      }
    }
  }
}

TEST(ReplicaAverages, ReplicasPartBetweenSyncs) {
  spec::Config config =
      make_config(spec::Sharding::kTableWise, make_optimizer(spec::SparseOptimizerKind::kSgd));
  const RunResult every_step =
      run_mesh(with_mesh(config, 2, spec::SyncForm::kDense), {2, 2}, {.steps = 4});
  config.mesh.sync_every = 2;
  const RunResult every_other =
      run_mesh(with_mesh(config, 2, spec::SyncForm::kDense), {2, 2}, {.steps = 4});
  EXPECT_NE(every_other.pooled, every_step.pooled);
}

}  // namespace
}  // namespace weft::sharding
