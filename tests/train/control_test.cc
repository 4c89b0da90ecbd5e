// The control block that rides on the exchange of counts.
#include "weft/train/control.h"

#include <vector>

#include <gtest/gtest.h>

#include "weft/base/parts.h"

namespace weft::train {
namespace {

TEST(Control, MergesWhatEveryRankSays) {
  for (const std::int64_t ranks : {1, 2, 3, 5, 8}) {
    constexpr std::int64_t kParts = 8;
    constexpr std::int64_t kTasks = 2;
    ControlCodec codec(kParts, ranks, kTasks);
    std::vector<std::vector<std::byte>> blocks;
    double expected_weight = 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      const Range own = rank_parts(kParts, ranks, r);
      LocalControl local;
      local.stop = r == ranks - 1;
      local.has_previous = true;
      if (r == ranks / 2) {
        local.overflow = {.count = 2, .table = 3, .row = 4};
      }
      for (std::int64_t p = own.begin; p < own.end; ++p) {
        local.weights.insert(local.weights.end(), {static_cast<double>(p), 1.0});
        expected_weight += static_cast<double>(p);
        metrics::BinarySums sums;
        sums.add(0.5F, 1.0F, static_cast<float>(p + 1));
        local.previous.insert(local.previous.end(), {sums, metrics::BinarySums{}});
      }
      blocks.emplace_back(static_cast<std::size_t>(codec.bytes()));
      codec.encode(local, r, blocks.back());
    }
    GlobalControl global;
    for (int twice = 0; twice < 2; ++twice) {
      codec.merge(
          [&](std::int64_t r) {
            return std::span<const std::byte>(blocks[static_cast<std::size_t>(r)]);
          },
          global);
    }
    EXPECT_TRUE(global.stop);
    EXPECT_TRUE(global.has_previous);
    EXPECT_EQ(global.overflow.count, 2);
    EXPECT_EQ(global.overflow.table, 3);
    EXPECT_EQ(global.overflow.row, 4);
    EXPECT_EQ(global.overflow_rank, ranks / 2);
    EXPECT_EQ(global.weights, (std::vector<double>{expected_weight, 8.0}));
    EXPECT_EQ(global.previous[0].count, kParts);
    EXPECT_EQ(global.previous[0].weight, 36.0);
    EXPECT_EQ(global.previous[1].count, 0);
  }
}

}  // namespace
}  // namespace weft::train
