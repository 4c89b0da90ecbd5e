// Memory of table shards against the objects, and the time formulas by hand.
#include "weft/cost/tables.h"

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"
#include "weft/cost/rounding.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/tables.h"
#include "weft/storage/row_store.h"

namespace weft::cost {
namespace {

using topology::Cluster;
using topology::small_cluster;

constexpr spec::RowDType kTypes[] = {spec::RowDType::kFp32, spec::RowDType::kFp16,
                                     spec::RowDType::kBf16, spec::RowDType::kSplitBf16};
constexpr SparseOptimizerKind kOptimizers[] = {
    SparseOptimizerKind::kSgd, SparseOptimizerKind::kAdagrad, SparseOptimizerKind::kRowWiseAdagrad,
    SparseOptimizerKind::kAdam, SparseOptimizerKind::kRowWiseAdam};

spec::Table wide_table(spec::RowDType dtype, SparseOptimizerKind optimizer) {
  spec::Table table;
  table.name = "t";
  table.num_embeddings = 1000;
  table.embedding_dim = 512;
  table.dtype = dtype;
  table.optimizer.type = optimizer;
  return table;
}

TEST(ShardMemory, IsWhatTheStoreAllocates) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  for (const spec::RowDType dtype : kTypes) {
    for (const SparseOptimizerKind optimizer : kOptimizers) {
      const spec::Table table = wide_table(dtype, optimizer);
      for (const std::int64_t rows : {1, 3, 17, 1000}) {
        for (const std::int64_t cols : {1, 2, 3, 5, 8, 15, 16, 17, 32, 48, 64, 100, 128, 512}) {
          const storage::RowStore store(*device, table, rows, cols);
          EXPECT_EQ(layout::shard_bytes(table, rows, cols), store.bytes())
              << static_cast<int>(dtype) << " " << static_cast<int>(optimizer) << " " << rows << "x"
              << cols;
          const RowShape row = row_shape(table, cols);
          EXPECT_EQ(row.weights + row.rest, static_cast<double>(store.row_bytes()));
          if (row.stride > 0) {
            EXPECT_EQ(row.stride, static_cast<double>(store.weight_stride()));
          } else {
            EXPECT_EQ(row.weights, static_cast<double>(store.weight_stride()));
          }
        }
      }
    }
  }
}

TEST(ShardMemory, IsWhatATableShardSays) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  const spec::Table table = wide_table(spec::RowDType::kSplitBf16, SparseOptimizerKind::kAdam);
  const embedding::TableShard shard(*device, table, {100, 350}, {16, 48}, 1, {});
  EXPECT_EQ(layout::shard_bytes(table, 250, 32), shard.bytes());
}

TEST(TableTimes, Lookup) {
  const Cluster cluster = small_cluster({{1, 1}});
  const spec::Table table = wide_table(spec::RowDType::kFp32, SparseOptimizerKind::kSgd);
  // Rows of 64 bytes at 1e9 bytes/s, or at twice the 1e11 of the link to itself where they are in a
  // cache. Vectors that are in a cache are written at a copy's 1e11.
  const ShardWork work{.ids = 1000, .unique = 900, .bags = 100, .hot = 0.25, .cold = 0.4};
  EXPECT_DOUBLE_EQ(lookup_s(cluster, table, 16, work),
                   750 * 64e-9 + 250 * 64 / 2e11 + 40 * 64e-9 + 60 * 64 / 1e11);
  ShardWork plain = work;
  plain.pooled = false;
  EXPECT_GT(lookup_s(cluster, table, 16, plain), lookup_s(cluster, table, 16, work));
}

TEST(TableTimes, UpdateTouchesStateWhereItLies) {
  const Cluster cluster = small_cluster({{1, 1}});
  const ShardWork work{.ids = 1000, .unique = 100, .bags = 50};
  const auto seconds = [&](SparseOptimizerKind kind) {
    return update_s(cluster, wide_table(spec::RowDType::kFp32, kind), 16, work);
  };
  const double gradients = gradients_s(cluster, 16, work);
  EXPECT_DOUBLE_EQ(seconds(SparseOptimizerKind::kSgd), gradients + 100 * 128e-9);
  // A second place in memory for one number per row.
  EXPECT_DOUBLE_EQ(seconds(SparseOptimizerKind::kRowWiseAdagrad), gradients + 100 * 256e-9);
  // 64 + 128 bytes together: three lines, between the points.
  EXPECT_DOUBLE_EQ(seconds(SparseOptimizerKind::kAdam),
                   gradients + 100 * (128e-9 / 3 + 2 * 256e-9 / 3));
}

TEST(TableTimes, MoreGradientsOfARow) {
  Cluster cluster = small_cluster({{1, 1}});
  const spec::Table table = wide_table(spec::RowDType::kFp32, SparseOptimizerKind::kSgd);
  const ShardWork work{.ids = 1000, .unique = 100, .bags = 50};
  const double before = update_s(cluster, table, 16, work);
  cluster.compute.repeat.value = 1e-8;
  EXPECT_DOUBLE_EQ(update_s(cluster, table, 16, work), before + 900 * 1e-8);
}

TEST(TableTimes, RoundedRowsAreDrawnFor) {
  Cluster cluster = small_cluster({{1, 1}});
  const ShardWork work{.ids = 1000, .unique = 100, .bags = 50};
  for (const spec::RowDType dtype : kTypes) {
    const spec::Table table = wide_table(dtype, SparseOptimizerKind::kSgd);
    const bool rounded = dtype == spec::RowDType::kFp16 || dtype == spec::RowDType::kBf16;
    EXPECT_EQ(rounds_rows(dtype), rounded);
    for (const std::int64_t cols : {16, 64, 65, 512}) {
      cluster.compute.draw.value = 0.0;
      const double bytes = update_s(cluster, table, cols, work);
      const double read = lookup_s(cluster, table, cols, work);
      cluster.compute.draw.value = 1e-9;
      // Whole blocks of 16 columns, once per row that is updated.
      const double drawn = cols == 65 ? 80.0 : static_cast<double>(cols);
      EXPECT_NEAR(update_s(cluster, table, cols, work) - bytes, rounded ? 100 * drawn * 1e-9 : 0.0,
                  1e-15)
          << static_cast<int>(dtype) << " " << cols;
      EXPECT_EQ(lookup_s(cluster, table, cols, work), read) << "nothing is rounded";
    }
  }
}

TEST(TableTimes, RowsShareLinesOfState) {
  const Cluster cluster = small_cluster({{1, 1}});
  const spec::Table table = wide_table(spec::RowDType::kFp32, SparseOptimizerKind::kRowWiseAdagrad);
  ShardWork work{.ids = 1000, .unique = 1000, .bags = 50};
  const double apart = update_s(cluster, table, 16, work);
  work.rows = 1600;  // of 4 bytes each: 100 lines, all touched
  EXPECT_NEAR(update_s(cluster, table, 16, work), apart - 900 * 128e-9, 1e-8);
}

TEST(TableTimes, GradientsAreFarOnce) {
  const Cluster cluster = small_cluster({{1, 1}});
  ShardWork work{.ids = 1000, .unique = 100, .bags = 50, .cold = 0.5};
  EXPECT_DOUBLE_EQ(gradients_s(cluster, 16, work), 25 * 64e-9 + 975 * 64 / 2e11);
  work.pooled = false;  // each id has its own
  EXPECT_DOUBLE_EQ(gradients_s(cluster, 16, work), 500 * 64e-9 + 500 * 64 / 2e11);
}

TEST(TableTimes, NearRowsAndSortingAtTheirOwnRates) {
  Cluster cluster = small_cluster({{1, 1}});
  const spec::Table table = wide_table(spec::RowDType::kFp32, SparseOptimizerKind::kSgd);
  const ShardWork work{.ids = 1000, .unique = 100, .bags = 50, .hot = 0.5, .cold = 1.0};
  const double lookup = lookup_s(cluster, table, 16, work);
  const double gradients = gradients_s(cluster, 16, work);
  const double sorted = coalesce_s(cluster, 2048, work);
  cluster.compute.rows.points[0].near = 1e10;  // of 64 bytes; before 2e11
  EXPECT_NEAR(lookup_s(cluster, table, 16, work) - lookup, 500 * 64 * (1e-10 - 0.5e-11), 1e-15);
  EXPECT_NEAR(gradients_s(cluster, 16, work) - gradients, 950 * 64 * (1e-10 - 0.5e-11), 1e-15);
  cluster.compute.sort.value = 1e10;  // before as copy, 1e11
  EXPECT_DOUBLE_EQ(coalesce_s(cluster, 2048, work), 10 * sorted);
}

TEST(TableTimes, CoalesceByPasses) {
  const Cluster cluster = small_cluster({{1, 1}});
  ShardWork work{.ids = 1e6};
  EXPECT_DOUBLE_EQ(coalesce_s(cluster, 2048, work), 1e6 * 88 / 1e11);
  EXPECT_DOUBLE_EQ(coalesce_s(cluster, 2049, work), 1e6 * 112 / 1e11);
  EXPECT_DOUBLE_EQ(coalesce_s(cluster, 1, work), 1e6 * 88 / 1e11);
  work.mixed = true;  // three more bits, and what goes with an entry is noted
  EXPECT_DOUBLE_EQ(coalesce_s(cluster, 256, work), 1e6 * 112 / 1e11);
  EXPECT_DOUBLE_EQ(coalesce_s(cluster, 257, work), 1e6 * 136 / 1e11);
}

TEST(TableTimes, ExpectedUnique) {
  EXPECT_DOUBLE_EQ(expected_unique(1, 100), 1);
  EXPECT_NEAR(expected_unique(2, 2), 1.5, 1e-12);
  EXPECT_NEAR(expected_unique(1e9, 1000), 1000, 1e-3);
  EXPECT_NEAR(expected_unique(10, 1e6), 10, 1e-9);
}

}  // namespace
}  // namespace weft::cost
