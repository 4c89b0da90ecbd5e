// Packed rows: their bytes by hand, and against rows in stores.
#include "weft/layout/packed_rows.h"

#include <gtest/gtest.h>

#include "weft/layout/tables.h"

namespace weft::layout {
namespace {

// 5 columns and 3 floats of state. Files have these bytes: they never change.
TEST(PackedRows, HaveTheirBytesByHand) {
  EXPECT_EQ(packed_row(ElementForm::kWord, 5, 3), (PackedRow{20, 0, 12}));
  EXPECT_EQ(packed_row(ElementForm::kHalf, 5, 3), (PackedRow{10, 0, 12}));
  EXPECT_EQ(packed_row(ElementForm::kHalves, 5, 3), (PackedRow{10, 10, 12}));
  const PackedRow row = packed_row(ElementForm::kHalves, 5, 3);
  EXPECT_EQ(row.low_offset(), 10);
  EXPECT_EQ(row.state_offset(), 20);
  EXPECT_EQ(row.bytes(), 32);
  EXPECT_EQ(packed_row(ElementForm::kWord, 64, 0).bytes(), 256);
}

TEST(PackedRows, AreRowsOfStoresWithoutGaps) {
  for (const SparseOptimizerTraits& traits : kSparseOptimizers) {
    for (const auto dtype : {spec::RowDType::kFp32, spec::RowDType::kFp16, spec::RowDType::kBf16,
                             spec::RowDType::kSplitBf16}) {
      for (const std::int64_t cols : {1, 7, 64}) {
        spec::Table table;
        table.dtype = dtype;
        table.optimizer.type = static_cast<SparseOptimizerKind>(&traits - kSparseOptimizers.data());
        const PackedRow row = packed_row(table, cols);
        const RowGeometry geometry = row_geometry(table, 9, cols);
        EXPECT_EQ(row.bytes(), geometry.row_bytes);
        EXPECT_EQ(row.weight_bytes, geometry.weight_bytes);
        EXPECT_EQ(row.state_bytes, geometry.low_offset - geometry.state_offset);
        EXPECT_EQ(row.low_bytes > 0, dtype == spec::RowDType::kSplitBf16);
      }
    }
  }
}

}  // namespace
}  // namespace weft::layout
