/// Matrices whose element type is known when the program runs: fp32 or bf16.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "weft/base/error.h"
#include "weft/layout/products.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

/// The same type as weft/layout counts it: fp32, else bf16.
constexpr layout::Element element_of(DType dtype) {
  return dtype == DType::kFloat32 ? layout::Element::kFp32 : layout::Element::kBf16;
}

/// The type that weft/layout counts as `element`.
constexpr DType dtype_of(layout::Element element) {
  return element == layout::Element::kFp32 ? DType::kFloat32 : DType::kBFloat16;
}

template <typename T>
inline constexpr DType kDTypeOf =
    std::is_same_v<std::remove_const_t<T>, float> ? DType::kFloat32 : DType::kBFloat16;

/// A view with its element type. V is void or const void; stride in elements.
template <typename V>
struct BasicOperand {
  V* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  BasicOperand() = default;

  // NOLINTBEGIN(google-explicit-constructor): a parameter type, as T* to void*
  template <typename T>
    requires(std::is_convertible_v<T*, V*> && (std::is_same_v<std::remove_const_t<T>, float> ||
                                               std::is_same_v<std::remove_const_t<T>, BFloat16>))
  BasicOperand(Matrix<T> m)
      : data(m.data), dtype(kDTypeOf<T>), rows(m.rows), cols(m.cols), stride(m.stride) {}

  template <typename U>
    requires(std::is_const_v<V> && std::is_same_v<U, void>)
  BasicOperand(const BasicOperand<U>& other)
      : data(other.data),
        dtype(other.dtype),
        rows(other.rows),
        cols(other.cols),
        stride(other.stride) {}

  // NOLINTEND(google-explicit-constructor)

  /// Bytes from one row to the next.
  [[nodiscard]] std::int64_t row_bytes() const { return stride * size_of(dtype); }

  [[nodiscard]] bool is_compact() const { return stride == cols || rows <= 1; }

  /// Returns rows [begin, end) of the same memory. REQUIRES: 0 <= begin <= end <= rows; not
  /// checked.
  [[nodiscard]] BasicOperand slice_rows(std::int64_t begin, std::int64_t end) const {
    BasicOperand slice = *this;
    slice.data = at(begin * row_bytes());
    slice.rows = end - begin;
    return slice;
  }

  /// Returns columns [begin, end) of the same memory. REQUIRES: 0 <= begin <= end <= cols; not
  /// checked.
  [[nodiscard]] BasicOperand slice_cols(std::int64_t begin, std::int64_t end) const {
    BasicOperand slice = *this;
    slice.data = at(begin * size_of(dtype));
    slice.cols = end - begin;
    return slice;
  }

  /// As a matrix of T, which must be its type.
  template <typename T>
  [[nodiscard]] auto as() const {
    using Element = std::conditional_t<std::is_const_v<V>, const T, T>;
    WEFT_CHECK(dtype == kDTypeOf<T>, "a matrix of {} used as another type", to_string(dtype));
    return Matrix<Element>{static_cast<Element*>(data), rows, cols, stride};
  }

 private:
  [[nodiscard]] V* at(std::int64_t bytes) const {
    using Byte = std::conditional_t<std::is_const_v<V>, const std::byte, std::byte>;
    return static_cast<Byte*>(data) + bytes;
  }
};

/// A matrix to read.
using ConstOperand = BasicOperand<const void>;

/// A matrix to write.
using Operand = BasicOperand<void>;

}  // namespace weft::kernels
