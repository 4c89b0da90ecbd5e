/// Private to kernels/reference: elements of matrices whose type is known when the program runs,
/// and sums in fp64.
#pragma once

#include <cstdint>

#include "weft/kernels/operand.h"

namespace weft::kernels::reference {

/// Element (i, j).
inline float value_at(const ConstOperand& x, std::int64_t i, std::int64_t j) {
  return x.dtype == DType::kFloat32 ? x.as<float>().row(i)[j]
                                    : to_float(x.as<BFloat16>().row(i)[j]);
}

/// Sets element (i, j), rounded where the matrix is bf16.
inline void set_value(const Operand& y, std::int64_t i, std::int64_t j, float value) {
  if (y.dtype == DType::kFloat32) {
    y.as<float>().row(i)[j] = value;
  } else {
    y.as<BFloat16>().row(i)[j] = to_bfloat16(value);
  }
}

/// `value` rounded to a type and back.
inline float rounded(float value, DType dtype) {
  return dtype == DType::kFloat32 ? value : to_float(to_bfloat16(value));
}

/// Calls body(i, j) for all elements of [rows, cols].
template <typename Body>
void for_each(std::int64_t rows, std::int64_t cols, const Body& body) {
  for (std::int64_t i = 0; i < rows; ++i) {
    for (std::int64_t j = 0; j < cols; ++j) {
      body(i, j);
    }
  }
}

}  // namespace weft::kernels::reference
