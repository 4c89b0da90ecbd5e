/// The parts of a row as bytes, for who sends rows as they are: weights, low halves, state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/kernels/rows.h"
#include "weft/tensor/dtype.h"

namespace weft::storage {

/// A part of every row of a store.
struct RowField {
  std::byte* data = nullptr;  ///< of slot 0
  std::int64_t stride = 0;    ///< bytes
  std::int64_t bytes = 0;     ///< of a row

  /// Where a slot's is.
  [[nodiscard]] std::byte* at(std::int64_t slot) const { return data + slot * stride; }
};

/// Weights; low halves of split_bf16 rows; state, where a row has some floats of it.
inline std::vector<RowField> row_fields(const kernels::RowTable& table, std::int64_t state_floats) {
  const bool halves = table.low != nullptr;
  const std::int64_t element = halves ? 2 : size_of(table.dtype);
  std::vector<RowField> fields = {
      {static_cast<std::byte*>(table.weights), table.weight_stride, table.cols * element}};
  if (halves) {
    fields.push_back({static_cast<std::byte*>(table.low), table.low_stride, table.cols * 2});
  }
  if (state_floats > 0) {
    fields.push_back({static_cast<std::byte*>(table.state), table.state_stride, 4 * state_floats});
  }
  return fields;
}

}  // namespace weft::storage
