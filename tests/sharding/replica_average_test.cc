// Averages of replicas, element by element, and the bytes that they take.
#include "weft/sharding/replica_average.h"

#include <bit>
#include <cmath>
#include <cstdint>
#include <functional>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/sharding/replica_items.h"
#include "tests/sharding/touched_note.h"
#include "weft/base/philox.h"
#include "weft/comm/local/local.h"
#include "weft/cost/replicas.h"
#include "weft/embedding/table_shard.h"
#include "weft/optim/sparse.h"
#include "weft/sharding/touched_rows.h"

namespace weft::sharding {
namespace {

using embedding::TableShard;

/// What one group has: any magnitude, both signs.
float value_of(std::uint64_t group, std::size_t item, std::size_t i) {
  const auto random = philox(random_key(group, RandomPurpose::kTest), item, i);
  const auto scale = static_cast<int>(random[1] % 40) - 20;
  return std::ldexp(uniform_float(random[0]) - 0.5F, scale);
}

using ReplicaBody =
    std::function<void(comm::Communicator& world, Context& ctx, TableShard&, ReplicaAverage&)>;

/// Runs on `groups` ranks, each with a replica.
void with_replicas(int groups,
                   const spec::Table& table,
                   spec::SyncForm form,
                   const ReplicaBody& body) {
  comm::run_local(groups, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 2});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    TableShard shard(*device, table, Range{0, kReplicaRows}, {0, kReplicaCols}, 1, {});
    ReplicaAverage average(world, *device, {&shard}, {.form = form, .seed = 5});
    body(world, ctx, shard, average);
  });
}

TEST(ReplicaAverage, IsTheMeanOfEveryElementRoundedOnce) {
  for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kSplitBf16}) {
    for (const int groups : {2, 3, 5}) {
      with_replicas(
          groups, replica_table(SparseOptimizerKind::kRowWiseAdam, dtype), spec::SyncForm::kDense,
          [&](comm::Communicator& world, Context& ctx, TableShard& shard, ReplicaAverage& average) {
            const std::size_t items = shard.state_items().size();
            ASSERT_EQ(items, 3U);
            std::vector<std::vector<float>> own;
            for (std::size_t k = 0; k < items; ++k) {
              std::vector<float> values = read_item(shard, k);
              for (std::size_t i = 0; i < values.size(); ++i) {
                values[i] = value_of(static_cast<std::uint64_t>(world.rank()), k, i);
              }
              write_item(shard, k, values);
              own.push_back(values);
            }
            average.run(ctx, 1);
            for (std::size_t k = 0; k < items; ++k) {
              const std::vector<float> got = read_item(shard, k);
              for (std::size_t i = 0; i < got.size(); ++i) {
                double sum = 0.0;
                for (int m = 0; m < groups; ++m) {
                  sum += static_cast<double>(value_of(static_cast<std::uint64_t>(m), k, i));
                }
                ASSERT_EQ(got[i], static_cast<float>(sum / groups)) << "item " << k << ", " << i;
              }
            }
          });
    }
  }
}

TEST(ReplicaAverage, EqualValuesStayBesideOthers) {
  // One column differs, so no row is skipped as equal.
  for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kBf16}) {
    for (const int groups : {3, 7, 8}) {
      with_replicas(
          groups, replica_table(SparseOptimizerKind::kSgd, dtype), spec::SyncForm::kDense,
          [&](comm::Communicator& world, Context& ctx, TableShard& shard, ReplicaAverage& average) {
            std::vector<float> values = read_item(shard, 0);
            for (std::size_t i = 0; i < values.size(); ++i) {
              const bool first_column = i % kReplicaCols == 0;
              values[i] = i % 7 == 3 ? -0.0F : value_of(99, 0, i);
              values[i] = first_column ? static_cast<float>(world.rank()) : values[i];
            }
            write_item(shard, 0, values);
            const std::vector<float> before = read_item(shard, 0);
            average.run(ctx, 1);
            const std::vector<float> after = read_item(shard, 0);
            for (std::size_t i = 0; i < after.size(); ++i) {
              if (i % kReplicaCols != 0) {
                ASSERT_EQ(std::bit_cast<std::uint32_t>(after[i]),
                          std::bit_cast<std::uint32_t>(before[i]))
                    << before[i] << " of " << groups;
              } else {
                ASSERT_NEAR(after[i], 0.5F * static_cast<float>(groups - 1), 0.03F);
              }
            }
          });
    }
  }
}

TEST(ReplicaAverage, HalvesAreRoundedUpAsOftenAsNot) {
  // 1 and the next bf16 above it: the mean lies half-way.
  with_replicas(
      2, replica_table(SparseOptimizerKind::kSgd, spec::RowDType::kBf16), spec::SyncForm::kDense,
      [&](comm::Communicator& world, Context& ctx, TableShard& shard, ReplicaAverage& average) {
        const float next = 1.0F + 0x1.0p-7F;
        std::vector<float> first;
        for (const std::int64_t step : {1, 2}) {
          write_item(
              shard, 0,
              std::vector<float>(kReplicaRows * kReplicaCols, world.rank() == 0 ? 1.0F : next));
          average.run(ctx, step);
          const std::vector<float> got = read_item(shard, 0);
          std::int64_t up = 0;
          for (const float value : got) {
            ASSERT_TRUE(value == 1.0F || value == next) << value;
            up += value == next ? 1 : 0;
          }
          EXPECT_NEAR(static_cast<double>(up), 0.5 * kReplicaRows * kReplicaCols,
                      120.0);  // 5 deviations
          EXPECT_NE(got, first) << "the draws do not depend on the step";
          first = got;
        }
      });
}

/// Updates rows [first, first + count) with gradients of `factor`.
embedding::RowGradients touch_evenly(
    Context& ctx, TableShard& shard, std::int64_t first, std::int64_t count, float factor = 1.0F) {
  std::vector<std::int64_t> ids;
  std::vector<std::int64_t> offsets;
  for (std::int64_t i = 0; i <= count; ++i) {
    offsets.push_back(i);
    ids.push_back(first + i);
  }
  const std::vector<std::int32_t> parts(ids.size());
  const std::vector<float> gradients(static_cast<std::size_t>(count * kReplicaCols), 1.0F);
  const embedding::GradientBlock block{
      .bags = {.ids = ids.data(), .offsets = offsets.data(), .weights = nullptr, .bags = count},
      .grads = gradients.data(),
      .grad_stride = kReplicaCols,
      .parts = parts.data()};
  embedding::RowGradients touched(*ctx.device, shard);
  touched.coalesce(ctx, {&block, 1});
  touched.accumulate(ctx, factor);
  shard.update(ctx, touched, {});
  return touched;
}

TEST(ReplicaAverage, SendsTheBytesOfTheFormula) {
  for (const auto dtype :
       {spec::RowDType::kFp32, spec::RowDType::kBf16, spec::RowDType::kSplitBf16}) {
    for (const auto kind : {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
                            SparseOptimizerKind::kAdam}) {
      for (const auto form : {spec::SyncForm::kDense, spec::SyncForm::kTouched}) {
        for (const int groups : {2, 4, 8}) {
          const spec::Table table = replica_table(kind, dtype);
          const double row_bytes = cost::replica_row_bytes(table, kReplicaCols);
          with_replicas(
              groups, table, form,
              [&](comm::Communicator& world, Context& ctx, TableShard& shard,
                  ReplicaAverage& average) {
                // Each group's 8 rows overlap with the next one's by half.
                note_updated(average, touch_evenly(ctx, shard, 4 * world.rank(), 8));
                const std::int64_t before = world.traffic().total().bytes;
                average.run(ctx, 1);
                const bool all = form == spec::SyncForm::kDense;
                const auto rows = static_cast<double>(all ? kReplicaRows : 4 * groups + 4);
                const double expected = cost::replica_average_bytes(groups, rows * row_bytes) +
                                        (all ? 0.0 : cost::touched_list_bytes(groups, 1, 8));
                // The 4 M + 4 touched rows do not divide among the groups: a group has one
                // more or less.
                EXPECT_NEAR(static_cast<double>(world.traffic().total().bytes - before), expected,
                            all ? 0.0 : row_bytes * groups)
                    << groups << " groups";
              });
        }
      }
    }
  }
}

TEST(TouchedRows, ListsGrowWithTheRowsAndNotWithTheSteps) {
  comm::run_local(2, {.timeout_s = 60}, [&](comm::Communicator& world) {
    const auto device = make_device({.threads = 2});
    Context ctx{.device = device.get(), .pool = &device->pool()};
    TableShard shard(*device, replica_table(SparseOptimizerKind::kSgd, spec::RowDType::kFp32),
                     Range{0, kReplicaRows}, {0, kReplicaCols}, 1, {});
    TouchedRows touched(world, {&shard});
    for (int round = 0; round < 2; ++round) {
      std::vector<std::int32_t> expected;
      for (int step = 0; step < 200; ++step) {
        // Runs of 6 rows, of a rank each, over 40 rows in no order.
        const std::int64_t first = (step * 13 + world.rank() * 5) % 35;
        note_updated(touched, touch_evenly(ctx, shard, first, 6));
        ASSERT_LE(touched.entries(), 2 * 40 + 6) << "step " << step;
      }
      for (int row = 0; row < 40; ++row) {
        expected.push_back(row);
      }
      touched.unite(ctx);
      EXPECT_EQ(std::vector(touched.rows(0).begin(), touched.rows(0).end()), expected);
      EXPECT_EQ(touched.entries(), 0);
    }
    note_updated(touched, touch_evenly(ctx, shard, world.rank() == 0 ? 90 : 3, 2));
    touched.unite(ctx);
    EXPECT_EQ(std::vector(touched.rows(0).begin(), touched.rows(0).end()),
              (std::vector<std::int32_t>{3, 4, 90, 91}));
  });
}

TEST(MomentumScaled, DividesTheSumOfSquaresWhereItIsUsed) {
  constexpr double kScale = 5.0;
  for (const auto kind : {SparseOptimizerKind::kAdagrad, SparseOptimizerKind::kRowWiseAdagrad}) {
    spec::Table table = replica_table(kind, spec::RowDType::kFp32);
    table.optimizer.learning_rate = 0.3;
    table.optimizer.eps = 0.1;
    table.optimizer.initial_accumulator = 0.7;
    table.optimizer.weight_decay = 0.2;
    table.optimizer.weight_decay_mode = spec::WeightDecayMode::kDecoupled;
    const spec::SparseOptimizer plain = table.optimizer;
    table.optimizer = optim::momentum_scaled(plain, kScale);
    with_replicas(1, table, spec::SyncForm::kDense,
                  [&](comm::Communicator&, Context& ctx, TableShard& shard, ReplicaAverage&) {
                    const std::vector<float> before = read_item(shard, 0);
                    touch_evenly(ctx, shard, 0, kReplicaRows);  // gradients of 1
                    const std::vector<float> after = read_item(shard, 0);
                    const double sum = kScale * plain.initial_accumulator + 1.0;
                    EXPECT_FLOAT_EQ(read_item(shard, 1)[3], static_cast<float>(sum));
                    const double step = plain.learning_rate / (std::sqrt(sum / kScale) + plain.eps);
                    const double keep = 1.0 - plain.learning_rate * plain.weight_decay;
                    for (std::size_t i = 0; i < after.size(); ++i) {
                      ASSERT_NEAR(after[i], keep * before[i] - step, 1e-6) << i;
                    }
                  });
  }
  const spec::SparseOptimizer adam = {.type = SparseOptimizerKind::kAdam};
  EXPECT_EQ(optim::momentum_scaled(adam, 4.0), adam);
}

// The mean of the groups' squares of M-fold gradients: M times the square of one group's.
TEST(MomentumScaled, ARowThatOneGroupTouchesHasTheSumOfOneGroup) {
  for (const int groups : {2, 4, 8}) {
    spec::Table table = replica_table(SparseOptimizerKind::kRowWiseAdagrad, spec::RowDType::kFp32);
    table.optimizer.initial_accumulator = 0.25;
    table.optimizer = optim::momentum_scaled(table.optimizer, groups);
    with_replicas(
        groups, table, spec::SyncForm::kTouched,
        [&](comm::Communicator& world, Context& ctx, TableShard& shard, ReplicaAverage& average) {
          const auto factor = static_cast<float>(groups);
          note_updated(average, touch_evenly(ctx, shard, 0, world.rank() == 1 ? 8 : 0, factor));
          average.run(ctx, 1);
          const std::vector<float> sums = read_item(shard, 1);
          EXPECT_EQ(sums[3] / factor, 0.25F + 1.0F);
          EXPECT_EQ(sums[50] / factor, 0.25F) << "nobody touched it";
        });
  }
}

}  // namespace
}  // namespace weft::sharding
