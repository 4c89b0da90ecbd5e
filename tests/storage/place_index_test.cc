#include "weft/storage/place_index.h"

#include <algorithm>
#include <map>
#include <random>

#include <gtest/gtest.h>

namespace weft::storage {
namespace {

TEST(PlaceCode, SaysWhatItWasMadeOf) {
  EXPECT_TRUE(PlaceCode().is_nowhere());
  for (const std::uint32_t segment : {0U, 1U, 4711U, PlaceCode::kMaxSegments - 1}) {
    for (const rowfile::Place place :
         {rowfile::Place{1, 0}, {2, 4079}, {PlaceCode::kMaxBlocks - 1, 14}}) {
      const PlaceCode code = PlaceCode::in_segment(segment, place);
      EXPECT_FALSE(code.is_nowhere());
      EXPECT_FALSE(code.is_buffered());
      EXPECT_EQ(code.segment(), segment);
      EXPECT_EQ(code.place(), place);
      EXPECT_TRUE(code.shares_group(PlaceCode::in_segment(segment, {place.block, 7})));
      EXPECT_FALSE(code.shares_group(PlaceCode::in_segment(segment, {place.block - 1, 0})));
    }
  }
  const PlaceCode code = PlaceCode::in_buffer(PlaceCode::kMaxChunks - 1, 12345);
  EXPECT_TRUE(code.is_buffered());
  EXPECT_EQ(code.chunk(), PlaceCode::kMaxChunks - 1);
  EXPECT_EQ(code.row(), 12345U);
}

TEST(PlaceCode, SortsByPlace) {
  EXPECT_LT(PlaceCode::in_segment(3, {9, 9}), PlaceCode::in_segment(4, {1, 0}));
  EXPECT_LT(PlaceCode::in_segment(3, {9, 9}), PlaceCode::in_segment(3, {10, 0}));
  EXPECT_LT(PlaceCode::in_segment(3, {9, 9}), PlaceCode::in_segment(3, {9, 10}));
}

TEST(PlaceIndex, KeepsWhatWasSet) {
  std::mt19937 random(1);
  for (const std::int64_t rows : {1, 31, 32, 33, 1000, 131072, 131073, 400000}) {
    PlaceIndex index(rows);
    std::map<std::int64_t, PlaceCode> model;
    for (int i = 0; i < 2000; ++i) {
      const auto row = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows));
      const PlaceCode code = PlaceCode::in_segment(7, {static_cast<std::uint32_t>(i), 1});
      index.set(row, code);
      model[row] = code;
      const auto other = static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(rows));
      const auto found = model.find(other);
      ASSERT_EQ(index.get(other), found == model.end() ? PlaceCode() : found->second);
    }
  }
}

TEST(PlaceIndex, ATableCostsNothingUntilRowsExist) {
  constexpr std::int64_t kRows = 1'000'000'000;
  PlaceIndex index(kRows);
  EXPECT_LT(index.bytes(), 100'000);
  EXPECT_TRUE(index.get(kRows - 1).is_nowhere());
  constexpr std::int64_t kDense = 100'000;
  for (std::int64_t row = 0; row < kDense; ++row) {
    index.set(kRows / 2 + row, PlaceCode::in_segment(0, {1, 0}));
  }
  EXPECT_LT(index.bytes(), 9 * kDense + 200'000);
}

TEST(PlaceIndex, TakesWhatLayoutSays) {
  for (const std::int64_t rows : {1, 31, 32, 33, 1000, 131072, 131073, 400000}) {
    PlaceIndex index(rows);
    EXPECT_EQ(index.bytes(), layout::place_index_bytes(rows, 0)) << rows;
    for (const std::int64_t step : {160, 32, 1}) {  // every fifth page, then all
      for (std::int64_t row = rows - 1; row >= 0; row -= step) {
        index.set(row, PlaceCode::in_segment(0, {1, 0}));
      }
      const std::int64_t apart = std::max<std::int64_t>(step, 32);
      EXPECT_EQ(index.bytes(), layout::place_index_bytes(rows, (rows + apart - 1) / apart))
          << rows << " by " << step;
    }
  }
}

}  // namespace
}  // namespace weft::storage
