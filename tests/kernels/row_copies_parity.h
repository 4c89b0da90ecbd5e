// The parity lists of copy_from_rows and copy_to_rows: every backend passes them
// (tests/kernels/parity.h).
#pragma once

#include <vector>

#include "tests/kernels/row_cases.h"
#include "weft/kernels/row_copies.h"

namespace weft::kernels::test {

/// Calls body(table, a copy without bases, bytes of its matrix) for weights and state of every row
/// type and layout, whole rows and some columns of some.
template <typename Body>
void for_row_copies(const Body& body) {
  Random random(2);
  for (const DType dtype : kRowTypes) {
    for (const SparseOptimizerKind rule :
         {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
          SparseOptimizerKind::kAdam}) {
      for (const std::int64_t cols : {1, 17, 64}) {
        TableCase table(random, 300, cols, dtype, rule);
        for (const RowCopy::Part part : {RowCopy::Part::kWeights, RowCopy::Part::kState}) {
          const std::int64_t wide =
              part == RowCopy::Part::kWeights ? cols : state_floats(rule, cols);
          for (const bool some : {false, true}) {
            RowCopy copy;
            copy.table = table.view;
            copy.part = part;
            copy.slots = some ? Range{3, 290} : Range{0, 300};
            copy.first = some ? wide / 2 : 0;
            copy.cols = wide - copy.first - (some && wide > 3 ? 1 : 0);
            copy.stride = copy.cols * element_bytes(table.view, part) + (some ? 12 : 0);
            copy.first_row = some ? 2 : 0;
            if (copy.cols > 0) {
              body(table, copy, (copy.first_row + copy.slots.size()) * copy.stride);
            }
          }
        }
      }
    }
  }
}

/// A copy with the bases of a view.
inline RowCopy moved(RowCopy copy, const RowTable& view, std::byte* matrix) {
  copy.table = view;
  copy.matrix = matrix;
  return copy;
}

inline void expect_copy_from_rows_parity(Device& device) {
  for_row_copies([&](TableCase& table, const RowCopy& copy, std::int64_t bytes) {
    run_on(device, [&](Context& ctx) {
      TableCopies rows(table);
      Copied<std::byte> matrix(std::vector<std::byte>(static_cast<std::size_t>(bytes)));
      const RowCopy tested = moved(copy, rows.place(ctx), matrix.place(ctx));
      const RowCopy plain = moved(copy, rows.host(), matrix.host());
      copy_from_rows(ctx, std::span(&tested, 1));
      reference::copy_from_rows(ctx, std::span(&plain, 1));
      EXPECT_TRUE(matrix.same_bits(ctx)) << to_string(copy.table.dtype) << " " << copy.cols;
    });
  });
}

inline void expect_copy_to_rows_parity(Device& device) {
  Random random(7);
  for_row_copies([&](TableCase& table, const RowCopy& copy, std::int64_t bytes) {
    run_on(device, [&](Context& ctx) {
      TableCopies rows(table);
      std::vector<float> values;
      for (std::int64_t i = 0; i < bytes / 4 + 1; ++i) {
        values.push_back(number(random));
      }
      const auto* const data = reinterpret_cast<const std::byte*>(values.data());
      Copied<std::byte> matrix(std::vector<std::byte>(data, data + bytes));
      const RowCopy tested = moved(copy, rows.place(ctx), matrix.place(ctx));
      const RowCopy plain = moved(copy, rows.host(), matrix.host());
      copy_to_rows(ctx, std::span(&tested, 1));
      EXPECT_FALSE(rows.same_bits(ctx));
      reference::copy_to_rows(ctx, std::span(&plain, 1));
      EXPECT_TRUE(rows.same_bits(ctx)) << to_string(copy.table.dtype) << " " << copy.cols;
    });
  });
}

}  // namespace weft::kernels::test
