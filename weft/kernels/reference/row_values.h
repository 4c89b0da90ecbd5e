/// Private to kernels/reference: elements of a row of any type; of split_bf16 the high half. And
/// the random bits with which they are rounded.
#pragma once

#include <cstdint>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/row_draws.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/dtype.h"

namespace weft::kernels::reference {

inline float load_element(const void* row, DType dtype, std::int64_t col) {
  switch (dtype) {
    case DType::kFloat32:
      return static_cast<const float*>(row)[col];
    case DType::kFloat16:
      return to_float(static_cast<const Float16*>(row)[col]);
    case DType::kBFloat16:
    case DType::kSplitBFloat16:
      return to_float(static_cast<const BFloat16*>(row)[col]);
    default:
      fail(ErrorCode::kInternal, "embedding rows of type {}", to_string(dtype));
  }
}

inline void store_element(
    void* row, DType dtype, std::int64_t col, float value, std::uint32_t random) {
  switch (dtype) {
    case DType::kFloat32:
      static_cast<float*>(row)[col] = value;
      return;
    case DType::kFloat16:
      static_cast<Float16*>(row)[col] = to_float16_stochastic(value, random);
      return;
    case DType::kBFloat16:
      static_cast<BFloat16*>(row)[col] = to_bfloat16_stochastic(value, random);
      return;
    default:
      fail(ErrorCode::kInternal, "embedding rows of type {}", to_string(dtype));
  }
}

/// Those of column `col` of a row here.
inline std::uint32_t element_bits(const RowDraws& draws,
                                  const RowTable& table,
                                  std::int64_t row,
                                  std::uint64_t step,
                                  std::int64_t col) {
  const std::int64_t whole_col = table.first_col + col;
  const std::int64_t place = whole_col % RowDraws::kColumns;
  return draws.bits(table.whole_row(row), step, whole_col - place)[at(place)];
}

}  // namespace weft::kernels::reference
