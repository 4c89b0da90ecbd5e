/// Private to kernels/cpu: the vectors of a sample's features, of which interactions are made.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/error.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

/// Throws Error(kInternal) unless every field is [rows, dim].
template <typename T>
void check_fields(std::span<const Matrix<T>> fields, std::int64_t rows, std::int64_t dim) {
  for (const Matrix<T>& field : fields) {
    WEFT_CHECK(field.rows == rows && field.cols == dim, "field [{}, {}] among [{}, {}]", field.rows,
               field.cols, rows, dim);
  }
}

}  // namespace weft::kernels
