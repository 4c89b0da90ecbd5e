// Bytes of row sums by hand; against a step: tests/train/predicted_bytes_test.cc, and against the
// exchange: tests/sharding/owned_sums_test.cc.
#include "weft/cost/row_sums.h"

#include <numeric>

#include <gtest/gtest.h>

namespace weft::cost {
namespace {

constexpr SummedTable kTable{.rows = 32, .cols = 16, .partials = 40.0, .touched = 20.0};

TEST(RowSumBytes, OfFewRanksAreGathered) {
  RowSumBytes bytes(8, 2);
  bytes.add(kTable);
  bytes.add(kTable);
  EXPECT_EQ(bytes.form(), layout::RowSums::kGathered);
  EXPECT_EQ(bytes.counts(), 16.0);
  EXPECT_EQ(bytes.gathered(), 2 * 40.0 * 76.0);
  EXPECT_EQ(row_sum_bytes(8, kTable), 40.0 * 76.0);
}

TEST(RowSumBytes, OfManyRanksDoNotGrow) {
  for (const std::int64_t ranks : {16, 32, 1024}) {
    RowSumBytes bytes(ranks, 1);
    bytes.add(kTable);
    EXPECT_EQ(bytes.form(), layout::RowSums::kOwned);
    const auto all = [](const std::vector<double>& of) {
      return std::accumulate(of.begin(), of.end(), 0.0);
    };
    EXPECT_DOUBLE_EQ(all(bytes.to_owners()), 40.0 * 76.0);
    EXPECT_DOUBLE_EQ(all(bytes.sums()), 20.0 * 72.0);
    EXPECT_DOUBLE_EQ(row_sum_bytes(ranks, kTable) * static_cast<double>(ranks),
                     40.0 * 76.0 + 20.0 * 72.0);
  }
}

TEST(RowSumBytes, CountsTakeTheBitsOfTheMostRows) {
  RowSumBytes bytes(16, 3, 3);
  bytes.add({.rows = 8, .cols = 1});
  bytes.add({.rows = 16 * 7, .cols = 1});
  bytes.add({.rows = 16 * 200, .cols = 1});
  for (std::size_t r = 0; r < 16; ++r) {
    // Of 0 or 1, 7 and 200 rows; as partial sums three times as many.
    const std::int64_t first = r % 2 == 1 ? 1 : 0;
    EXPECT_EQ(bytes.counts_of_sums()[r], (first + 3 + 8 + 7) / 8) << "rank " << r;
    EXPECT_EQ(bytes.counts_to_owners()[r], (2 * first + 5 + 10 + 7) / 8) << "rank " << r;
  }
  EXPECT_EQ(layout::most_nodes(16, 16), 1);
  EXPECT_EQ(layout::most_nodes(24, 5), 3);  // [9, 14) is [9, 10), [10, 12) and [12, 14)
}

TEST(RowSumBytes, AreThoseOfARanksBlocks) {
  RowSumBytes bytes(16, 2);
  bytes.add({.rows = 8, .cols = 1, .partials = 8.0, .touched = 8.0});
  bytes.add({.rows = 1, .cols = 1, .partials = 1.0, .touched = 1.0});
  // Of 8 rows every second rank has one, the first at rank 1; the one row is the last block, eight
  // ranks further on.
  for (std::size_t r = 0; r < 16; ++r) {
    const double rows = (r % 2 == 1 ? 1.0 : 0.0) + (r == 7 ? 1.0 : 0.0);
    EXPECT_EQ(bytes.to_owners()[r], 16.0 * rows) << "rank " << r;
    EXPECT_EQ(bytes.sums()[r], 12.0 * rows) << "rank " << r;
  }
}

}  // namespace
}  // namespace weft::cost
