// Elementwise pieces: plain loops over rows, compiled once per target so that the compiler
// vectorises them for it. Bytes bound them (8 to 20 per element against one or two flops), and
// contraction is off, so every target computes the same bits.
#include "weft/kernels/elementwise.h"

#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/elementwise.cc"
#include <bit>

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

void to_bf16_row(const float* x, BFloat16* y, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const auto bits = std::bit_cast<std::uint32_t>(x[j]);
    // Half a unit of the kept part, less one if it is even: ties go to even.
    const std::uint32_t rounded = bits + 0x7fffU + ((bits >> 16) & 1U);
    const bool nan = (bits & 0x7fffffffU) > 0x7f800000U;
    y[j].bits = static_cast<std::uint16_t>((nan ? bits | 0x400000U : rounded) >> 16);
  }
}

void from_bf16_row(const BFloat16* x, float* y, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    y[j] = std::bit_cast<float>(static_cast<std::uint32_t>(x[j].bits) << 16);
  }
}

void add_row(const float* x, float* y, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    y[j] += x[j];
  }
}

void relu_backward_row(const float* y, float* dy, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    dy[j] = y[j] > 0.0F ? dy[j] : 0.0F;
  }
}

void relu_backward_bf16_row(const BFloat16* y, BFloat16* dy, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    // Above zero: sign clear and not all zero. An output of ReLU is never NaN unless its input is.
    const bool above = y[j].bits != 0 && (y[j].bits & 0x8000U) == 0;
    dy[j].bits = above ? dy[j].bits : std::uint16_t{0};
  }
}

void cross_forward_row(const float* x0, const float* u, const float* x, float* y, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    y[j] = x0[j] * u[j] + x[j];
  }
}

void cross_backward_row(
    const float* x0, const float* u, const float* dy, float* du, float* dx0, std::int64_t n) {
  for (std::int64_t j = 0; j < n; ++j) {
    const float g = dy[j];
    dx0[j] += g * u[j];
    du[j] = g * x0[j];
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include <algorithm>

#include "weft/base/error.h"
#include "weft/kernels/matmul.h"

namespace weft::kernels {

HWY_EXPORT(to_bf16_row);
HWY_EXPORT(from_bf16_row);
HWY_EXPORT(add_row);
HWY_EXPORT(relu_backward_row);
HWY_EXPORT(relu_backward_bf16_row);
HWY_EXPORT(cross_forward_row);
HWY_EXPORT(cross_backward_row);

namespace {

template <typename A, typename B>
void check_same(const Matrix<A>& a, const Matrix<B>& b) {
  WEFT_CHECK(a.rows == b.rows && a.cols == b.cols, "[{}, {}] beside [{}, {}]", a.rows, a.cols,
             b.rows, b.cols);
}

}  // namespace

void convert(Matrix<const float> x, Matrix<BFloat16> y) {
  check_same(x, y);
  const auto row = HWY_DYNAMIC_DISPATCH(to_bf16_row);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    row(x.row(i), y.row(i), x.cols);
  }
}

void convert(Matrix<const BFloat16> x, Matrix<float> y) {
  check_same(x, y);
  const auto row = HWY_DYNAMIC_DISPATCH(from_bf16_row);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    row(x.row(i), y.row(i), x.cols);
  }
}

void copy(Matrix<const float> x, Matrix<float> y) {
  check_same(x, y);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    std::copy_n(x.row(i), x.cols, y.row(i));
  }
}

void fill_zero(Matrix<float> y) {
  for (std::int64_t i = 0; i < y.rows; ++i) {
    std::fill_n(y.row(i), y.cols, 0.0F);
  }
}

void add(Matrix<const float> x, Matrix<float> y) {
  check_same(x, y);
  const auto row = HWY_DYNAMIC_DISPATCH(add_row);
  for (std::int64_t i = 0; i < x.rows; ++i) {
    row(x.row(i), y.row(i), x.cols);
  }
}

void relu_backward(Matrix<const float> y, Matrix<float> dy) {
  check_same(y, dy);
  const auto row = HWY_DYNAMIC_DISPATCH(relu_backward_row);
  for (std::int64_t i = 0; i < y.rows; ++i) {
    row(y.row(i), dy.row(i), y.cols);
  }
}

void relu_backward(Matrix<const BFloat16> y, Matrix<BFloat16> dy) {
  check_same(y, dy);
  const auto row = HWY_DYNAMIC_DISPATCH(relu_backward_bf16_row);
  for (std::int64_t i = 0; i < y.rows; ++i) {
    row(y.row(i), dy.row(i), y.cols);
  }
}

void cross_forward(Matrix<const float> x0,
                   Matrix<const float> u,
                   Matrix<const float> x,
                   Matrix<float> y) {
  check_same(x0, y);
  check_same(u, y);
  check_same(x, y);
  const auto row = HWY_DYNAMIC_DISPATCH(cross_forward_row);
  for (std::int64_t i = 0; i < y.rows; ++i) {
    row(x0.row(i), u.row(i), x.row(i), y.row(i), y.cols);
  }
}

void cross_backward(Matrix<const float> x0,
                    Matrix<const float> u,
                    Matrix<const float> dy,
                    Matrix<float> du,
                    Matrix<float> dx0) {
  check_same(x0, dy);
  check_same(u, dy);
  check_same(du, dy);
  check_same(dx0, dy);
  const auto row = HWY_DYNAMIC_DISPATCH(cross_backward_row);
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    row(x0.row(i), u.row(i), dy.row(i), du.row(i), dx0.row(i), dy.cols);
  }
}

// Declared in matmul.h: not a product, but part of a linear layer. Rows are added in order, each
// column by itself.
void Matmul::backward_bias(const ConstOperand& dy, float* db) {
  std::fill_n(db, dy.cols, 0.0F);
  const auto add_to = HWY_DYNAMIC_DISPATCH(add_row);
  if (dy.dtype == DType::kFloat32) {
    for (std::int64_t i = 0; i < dy.rows; ++i) {
      add_to(static_cast<const float*>(dy.data) + i * dy.stride, db, dy.cols);
    }
    return;
  }
  for (std::int64_t i = 0; i < dy.rows; ++i) {
    const auto* row = static_cast<const BFloat16*>(dy.data) + i * dy.stride;
    for (std::int64_t j = 0; j < dy.cols; ++j) {
      db[j] += to_float(row[j]);
    }
  }
}

}  // namespace weft::kernels

#endif
