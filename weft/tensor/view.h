/// Views: where numbers lie, owned by somebody else.
#pragma once

#include <cstdint>
#include <type_traits>

namespace weft {

/// A row-major matrix view: element (i, j) is data[i * stride + j]. stride >= cols, in elements.
template <typename T>
struct Matrix {
  T* data = nullptr;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  [[nodiscard]] T* row(std::int64_t i) const { return data + i * stride; }

  [[nodiscard]] Matrix slice_rows(std::int64_t begin, std::int64_t end) const {
    return {data + begin * stride, end - begin, cols, stride};
  }

  [[nodiscard]] Matrix slice_cols(std::int64_t begin, std::int64_t end) const {
    return {data + begin, rows, end - begin, stride};
  }

  operator Matrix<const T>() const  // NOLINT(google-explicit-constructor): as T* to const T*
    requires(!std::is_const_v<T>)
  {
    return {data, rows, cols, stride};
  }
};

/// A compact matrix over `data`.
template <typename T>
Matrix<T> matrix(T* data, std::int64_t rows, std::int64_t cols) {
  return {data, rows, cols, cols};
}

/// Where row `index` begins, of rows that are `stride` elements apart.
template <typename T>
[[nodiscard]] T* row_at(T* data, std::int64_t stride, std::int64_t index) {
  return data + index * stride;
}

}  // namespace weft
