// Coalescing against a stable sort.

#include <gtest/gtest.h>

#include "tests/kernels/coalesce_parity.h"

namespace weft::kernels::test {
namespace {

TEST(Coalesce, PassesItsParityList) {
  for (const int threads : {1, 3}) {
    expect_coalesce_parity(*make_device({.threads = threads}));
    expect_count_up_parity(*make_device({.threads = threads}));
  }
  on_check_device(expect_coalesce_parity);
  on_check_device(expect_count_up_parity);
}

/// Buffers that have held more are used again.
TEST(Coalesce, NothingGivesNothing) {
  const std::unique_ptr<Device> device = make_device({});
  RunBuffers buffers(*device);
  RowRuns runs;
  Context ctx;
  BagsCase bags;
  bags.ids = {4, 2};
  bags.offsets = {0, 2, 2};
  bags.parts = {0, 1};
  for (const std::int64_t ids : {2, 0}) {
    bags.offsets = {0, ids, ids};
    const GradientBlock block = bags.block();
    const CoalesceJob job{
        .blocks = std::span(&block, 1), .rows = 10, .parts = 8, .buffers = &buffers, .runs = &runs};
    coalesce(ctx, std::span(&job, 1));
    EXPECT_EQ(runs.num_rows, ids);
    EXPECT_EQ(runs.num_segments, ids);
  }
}

}  // namespace
}  // namespace weft::kernels::test
