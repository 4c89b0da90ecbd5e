// Shapes of caches, and their bytes.
#include "weft/layout/tiers.h"

#include <gtest/gtest.h>

namespace weft::layout {
namespace {

TEST(LayoutTiers, ShapesHaveTheSlotsThatWereAskedFor) {
  for (const std::int64_t ways : {8, 32}) {
    for (const double share : {0.0, 1.0 / 32.0, 0.5, 1.0}) {
      for (std::int64_t slots = 1; slots < 300; ++slots) {
        const CacheShape shape = cache_shape(slots, ways, share);
        EXPECT_EQ(shape.slots(), std::max(slots, ways));
        EXPECT_GE(shape.sets, 1);
        EXPECT_GE(shape.spill, 0);
        if (slots > 2 * ways && share < 1.0) {
          EXPECT_GE(shape.spill, static_cast<std::int64_t>(share * static_cast<double>(slots)));
          EXPECT_LT(shape.spill,
                    static_cast<std::int64_t>(share * static_cast<double>(slots)) + ways);
        }
      }
    }
  }
}

TEST(LayoutTiers, BytesAreCutIntoAsManySlotsAsFit) {
  for (const SparseOptimizerKind optimizer :
       {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
        SparseOptimizerKind::kAdam}) {
    spec::Table table;
    table.optimizer.type = optimizer;
    for (const std::int64_t bytes : {0, 5000, 100000, 12345678}) {
      const CacheShape shape = cache_shape_of_bytes(table, 16, bytes, 8, 1.0 / 32.0);
      const CacheShape more = cache_shape(shape.slots() + 1, 8, 1.0 / 32.0);
      EXPECT_GT(cache_bytes(table, 16, more), bytes);
      if (shape.slots() > 8) {
        EXPECT_LE(cache_bytes(table, 16, shape), bytes);
      }
    }
  }
}

// A row of 64 columns with one sum: 260 bytes, 20 beside it, and a head for eight of them.
TEST(LayoutTiers, BytesByHand) {
  spec::Table table;
  table.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  EXPECT_EQ(cache_bytes(table, 64, {.sets = 10, .ways = 8, .spill = 20}),
            100 * (256 + 4) + 100 * 20 + 10 * 4);
  EXPECT_EQ(fewest_cache_slots(100, 20, 8), 120);
  EXPECT_EQ(fewest_cache_slots(3, 0, 32), 32);
  EXPECT_EQ(rows_read_at_once(260), 4032);
  EXPECT_EQ(rows_read_at_once(1 << 20), 64);
}

}  // namespace
}  // namespace weft::layout
