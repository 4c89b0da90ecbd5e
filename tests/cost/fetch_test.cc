// Seconds of fetches, worked out by hand.
#include "weft/cost/fetch.h"

#include <gtest/gtest.h>

#include "tests/topology/small_cluster.h"

namespace weft::cost {
namespace {

topology::Cluster with_disk() {
  topology::Cluster cluster = topology::small_cluster({{1, 1}});
  cluster.disk.read_blocks = {.value = 1e5, .efficiency = 0.8, .source = {}};
  cluster.disk.block.value = 2e-6;
  return cluster;
}

/// Rows of 64 bytes take 64 ns to read and 128 ns to update. 4,096 rows have 12 bits, so two passes
/// of 11, and an id moves 28 + 32 bytes at 1e11 a second.
TEST(FetchCost, IsTheSumOfItsTerms) {
  const FetchWork work{.rows = 4096,
                       .ids = 10'000.0,
                       .unique = 3000.0,
                       .missed = 800.0,
                       .blocks = 500.0,
                       .row_bytes = 64.0};
  EXPECT_DOUBLE_EQ(disk_s(with_disk(), work), 500.0 / 8e4);
  EXPECT_NEAR(fetch_s(with_disk(), work),
              10'000.0 * 60e-11 + 3000.0 * 64e-9 + 500.0 * 2e-6 + 800.0 * (64e-9 + 128e-9), 1e-12);
  FetchWork fewer = work;  // 2,048 rows: one pass
  fewer.rows = 2048;
  EXPECT_NEAR(fetch_s(with_disk(), work) - fetch_s(with_disk(), fewer), 10'000.0 * 16e-11, 1e-12);
}

TEST(FetchCost, WithoutARateReadsTakeNoTime) {
  EXPECT_EQ(disk_s(topology::small_cluster({{1, 1}}), {.blocks = 1e9}), 0.0);
}

}  // namespace
}  // namespace weft::cost
