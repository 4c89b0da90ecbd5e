// for each row, for each vector of columns: load, compute in fp32, store
//
// Bytes bound these loops: 4 to 24 per element (half of that in bf16) against one to three flops.
// No multiply-add is fused and no value crosses a lane, so every target computes the same bits. The
// end of a row that fills no vector goes through a small copy.

#include "weft/kernels/cpu/elementwise.h"

#include <algorithm>
#include <bit>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/elementwise.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/bf16-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// Calls body(d, column) for all columns: whole vectors first, then single elements.
template <typename Body>
HWY_INLINE void for_row(std::int64_t cols, const Body& body) {
  const Floats d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t col = 0;
  for (; col + lanes <= cols; col += lanes) {
    body(d, col);
  }
  const hn::FixedTag<float, 1> one;
  for (; col < cols; ++col) {
    body(one, col);
  }
}

template <typename From, typename To>
void assign_rows(Matrix<const From> x, Matrix<To> y) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const From* const from = x.row(i);
    To* const to = y.row(i);
    for_row(x.cols, [&](auto d, std::int64_t j) HWY_ATTR { store(load(d, from + j), d, to + j); });
  }
}

/// A value that is not finite shows by its exponent: the largest magnitude is taken along.
bool copy_rows(Matrix<const float> x, Matrix<float> y) {
  const Floats d;
  const hn::RebindToUnsigned<Floats> words;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto mask = hn::Set(words, 0x7FFFFFFFU);
  auto largest = hn::Zero(words);
  std::uint32_t rest = 0;
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float* const from = x.row(i);
    float* const to = y.row(i);
    std::int64_t j = 0;
    for (; j + lanes <= x.cols; j += lanes) {
      const auto value = hn::LoadU(d, from + j);
      largest = hn::Max(largest, hn::And(hn::BitCast(words, value), mask));
      hn::StoreU(value, d, to + j);
    }
    for (; j < x.cols; ++j) {
      rest = std::max(rest, std::bit_cast<std::uint32_t>(from[j]) & 0x7FFFFFFFU);
      to[j] = from[j];
    }
  }
  return rest < 0x7F800000U && hn::AllTrue(words, hn::Lt(largest, hn::Set(words, 0x7F800000U)));
}

template <typename T>
void add_rows(Matrix<const T> x, Matrix<T> y) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const T* const from = x.row(i);
    T* const to = y.row(i);
    for_row(x.cols, [&](auto d, std::int64_t j) HWY_ATTR {
      store(hn::Add(load(d, to + j), load(d, from + j)), d, to + j);
    });
  }
}

template <typename T, bool kBias, bool kRelu>
void finish_rows(Matrix<const float> x, const float* bias, Matrix<T> y) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const float* const from = x.row(i);
    T* const to = y.row(i);
    for_row(x.cols, [&](auto d, std::int64_t j) HWY_ATTR {
      auto value = hn::LoadU(d, from + j);
      if constexpr (kBias) {
        value = hn::Add(value, hn::LoadU(d, bias + j));
      }
      if constexpr (kRelu) {
        value = hn::Max(value, hn::Zero(d));
      }
      store(value, d, to + j);
    });
  }
}

template <typename T>
void finish_any(Matrix<const float> x, const float* bias, Activation activation, Matrix<T> y) {
  const bool relu = activation == Activation::kRelu;
  if (bias != nullptr) {
    relu ? finish_rows<T, true, true>(x, bias, y) : finish_rows<T, true, false>(x, bias, y);
  } else {
    relu ? finish_rows<T, false, true>(x, bias, y) : finish_rows<T, false, false>(x, bias, y);
  }
}

void finish_operand(Matrix<const float> x,
                    const float* bias,
                    Activation activation,
                    const Operand& y) {
  if (y.dtype == DType::kFloat32) {
    finish_any(x, bias, activation, y.as<float>());
  } else {
    finish_any(x, bias, activation, y.as<BFloat16>());
  }
}

/// Stores dy of a vector behind the ReLU, and returns it as fp32.
template <class D>
HWY_INLINE hn::Vec<D> relu_vector(D d, const float* y, float* dy) {
  const auto above = hn::Gt(hn::LoadU(d, y), hn::Zero(d));
  const auto kept = hn::IfThenElseZero(above, hn::LoadU(d, dy));
  hn::StoreU(kept, d, dy);
  return kept;
}

/// bf16 above zero is a positive number as int16 too.
template <class D>
HWY_INLINE hn::Vec<D> relu_vector(D d, const BFloat16* y, BFloat16* dy) {
  const hn::Rebind<std::int16_t, D> half;
  const hn::Rebind<std::uint16_t, D> bits;
  auto* const to = reinterpret_cast<std::int16_t*>(dy);
  const auto above =
      hn::Gt(hn::LoadU(half, reinterpret_cast<const std::int16_t*>(y)), hn::Zero(half));
  const auto kept = hn::IfThenElseZero(above, hn::LoadU(half, to));
  hn::StoreU(kept, half, to);
  const hn::RebindToUnsigned<D> words;
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, hn::BitCast(bits, kept))));
}

template <typename T, bool kSums>
void relu_rows(Matrix<const T> y, Matrix<T> dy, float* sums) {
  for (std::int64_t i = 0; i < y.rows; ++i) {
    const T* const output = y.row(i);
    T* const to = dy.row(i);
    for_row(y.cols, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto kept = relu_vector(d, output + j, to + j);
      if constexpr (kSums) {
        hn::StoreU(hn::Add(hn::LoadU(d, sums + j), kept), d, sums + j);
      }
    });
  }
}

template <typename T>
void column_sum_rows(Matrix<const T> x, float* out) {
  for (std::int64_t i = 0; i < x.rows; ++i) {
    const T* const from = x.row(i);
    for_row(x.cols, [&](auto d, std::int64_t j) HWY_ATTR {
      hn::StoreU(hn::Add(hn::LoadU(d, out + j), load(d, from + j)), d, out + j);
    });
  }
}

template <typename T>
void cross_forward_rows(const CrossElements<T>& c) {
  for (std::int64_t i = 0; i < c.y.rows; ++i) {
    const T* const x0 = c.x0.row(i);
    const T* const u = c.u.row(i);
    const T* const x = c.x.row(i);
    T* const y = c.y.row(i);
    for_row(c.y.cols, [&](auto d, std::int64_t j) HWY_ATTR {
      const auto product = hn::Mul(load(d, x0 + j), load(d, u + j));
      store(hn::Add(product, load(d, x + j)), d, y + j);
    });
  }
}

template <typename T, bool kMore, CrossSum kSum>
void cross_backward_rows(const CrossGradients<T>& c) {
  for (std::int64_t i = 0; i < c.dy.rows; ++i) {
    const T* const x0 = c.x0.row(i);
    const T* const u = c.u.row(i);
    const T* const more = kMore ? c.more.row(i) : nullptr;
    T* const dy = c.dy.row(i);
    T* const du = c.du.row(i);
    T* const dx0 = c.dx0.row(i);
    for_row(c.dy.cols, [&](auto d, std::int64_t j) HWY_ATTR {
      auto g = load(d, dy + j);
      if constexpr (kMore) {
        g = hn::Add(g, load(d, more + j));
        store(g, d, dy + j);
      }
      auto through_u = hn::Mul(g, load(d, u + j));
      if constexpr (kSum == CrossSum::kAdd) {
        through_u = hn::Add(load(d, dx0 + j), through_u);
      }
      store(through_u, d, dx0 + j);
      store(hn::Mul(g, load(d, x0 + j)), d, du + j);
    });
  }
}

template <typename T>
void cross_backward_any(const CrossGradients<T>& c) {
  const bool begin = c.sum == CrossSum::kBegin;
  if (c.more.data == nullptr) {
    begin ? cross_backward_rows<T, false, CrossSum::kBegin>(c)
          : cross_backward_rows<T, false, CrossSum::kAdd>(c);
  } else {
    begin ? cross_backward_rows<T, true, CrossSum::kBegin>(c)
          : cross_backward_rows<T, true, CrossSum::kAdd>(c);
  }
}

void assign_any(const ConstOperand& x, const Operand& y) {
  if (x.dtype == DType::kFloat32) {
    assign_rows(x.as<float>(), y.as<BFloat16>());
  } else {
    assign_rows(x.as<BFloat16>(), y.as<float>());
  }
}

template <typename T>
void relu_typed(Matrix<const T> y, Matrix<T> dy, float* sums) {
  if (sums == nullptr) {
    relu_rows<T, false>(y, dy, sums);
  } else {
    relu_rows<T, true>(y, dy, sums);
  }
}

void relu_any(const ConstOperand& y, const Operand& dy, float* sums) {
  if (y.dtype == DType::kFloat32) {
    relu_typed(y.as<float>(), dy.as<float>(), sums);
  } else {
    relu_typed(y.as<BFloat16>(), dy.as<BFloat16>(), sums);
  }
}

void column_sums_any(const ConstOperand& x, float* out) {
  if (x.dtype == DType::kFloat32) {
    column_sum_rows(x.as<float>(), out);
  } else {
    column_sum_rows(x.as<BFloat16>(), out);
  }
}

void add_fp32(Matrix<const float> x, Matrix<float> y) {
  add_rows(x, y);
}

void add_bf16(Matrix<const BFloat16> x, Matrix<BFloat16> y) {
  add_rows(x, y);
}

void cross_forward_fp32(const CrossElements<float>& c) {
  cross_forward_rows(c);
}

void cross_forward_bf16(const CrossElements<BFloat16>& c) {
  cross_forward_rows(c);
}

void cross_backward_fp32(const CrossGradients<float>& c) {
  cross_backward_any(c);
}

void cross_backward_bf16(const CrossGradients<BFloat16>& c) {
  cross_backward_any(c);
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "weft/kernels/elementwise.h"

namespace weft::kernels {

HWY_EXPORT(assign_any);
HWY_EXPORT(copy_rows);
HWY_EXPORT(add_fp32);
HWY_EXPORT(add_bf16);
HWY_EXPORT(finish_operand);
HWY_EXPORT(relu_any);
HWY_EXPORT(column_sums_any);
HWY_EXPORT(cross_forward_fp32);
HWY_EXPORT(cross_forward_bf16);
HWY_EXPORT(cross_backward_fp32);
HWY_EXPORT(cross_backward_bf16);

namespace {

template <typename A, typename B>
void check_same(const A& a, const B& b) {
  WEFT_CHECK(a.rows == b.rows && a.cols == b.cols, "[{}, {}] beside [{}, {}]", a.rows, a.cols,
             b.rows, b.cols);
}

template <typename T>
void check_cross(const CrossElements<T>& c) {
  check_same(c.x0, c.y);
  check_same(c.u, c.y);
  check_same(c.x, c.y);
}

template <typename T>
void check_cross(const CrossGradients<T>& c) {
  check_same(c.x0, c.dy);
  check_same(c.u, c.dy);
  check_same(c.du, c.dy);
  check_same(c.dx0, c.dy);
  if (c.more.data != nullptr) {
    check_same(c.more, c.dy);
  }
}

}  // namespace

void assign(const ConstOperand& x, const Operand& y) {
  check_same(x, y);
  if (x.dtype != y.dtype) {
    HWY_DYNAMIC_DISPATCH(assign_any)(x, y);
    return;
  }
  for (std::int64_t i = 0; i < x.rows; ++i) {
    std::memcpy(y.slice_rows(i, i + 1).data, x.slice_rows(i, i + 1).data,
                static_cast<std::size_t>(x.cols * size_of(x.dtype)));
  }
}

bool copy_is_finite(Matrix<const float> x, Matrix<float> y) {
  check_same(x, y);
  return HWY_DYNAMIC_DISPATCH(copy_rows)(x, y);
}

void add(Matrix<const float> x, Matrix<float> y) {
  check_same(x, y);
  HWY_DYNAMIC_DISPATCH(add_fp32)(x, y);
}

void add(Matrix<const BFloat16> x, Matrix<BFloat16> y) {
  check_same(x, y);
  HWY_DYNAMIC_DISPATCH(add_bf16)(x, y);
}

void finish_product(Matrix<const float> x,
                    const float* bias,
                    Activation activation,
                    const Operand& y) {
  check_same(x, y);
  HWY_DYNAMIC_DISPATCH(finish_operand)(x, bias, activation, y);
}

void relu_backward(const ConstOperand& y, const Operand& dy, float* sums) {
  check_same(y, dy);
  if (sums != nullptr) {
    std::fill_n(sums, y.cols, 0.0F);
  }
  HWY_DYNAMIC_DISPATCH(relu_any)(y, dy, sums);
}

void column_sums(const ConstOperand& x, float* out) {
  std::fill_n(out, x.cols, 0.0F);
  HWY_DYNAMIC_DISPATCH(column_sums_any)(x, out);
}

void cross_forward_elements(const CrossElements<float>& c) {
  check_cross(c);
  HWY_DYNAMIC_DISPATCH(cross_forward_fp32)(c);
}

void cross_forward_elements(const CrossElements<BFloat16>& c) {
  check_cross(c);
  HWY_DYNAMIC_DISPATCH(cross_forward_bf16)(c);
}

void cross_backward_elements(const CrossGradients<float>& c) {
  check_cross(c);
  HWY_DYNAMIC_DISPATCH(cross_backward_fp32)(c);
}

void cross_backward_elements(const CrossGradients<BFloat16>& c) {
  check_cross(c);
  HWY_DYNAMIC_DISPATCH(cross_backward_bf16)(c);
}

namespace cpu {

void assign(Context& /*ctx*/, const Assign& args) {
  kernels::assign(args.from, args.to);
}

void add(Context& /*ctx*/, const Add& args) {
  if (args.to.dtype == DType::kFloat32) {
    kernels::add(args.from.as<float>(), args.to.as<float>());
  } else {
    kernels::add(args.from.as<BFloat16>(), args.to.as<BFloat16>());
  }
}

void concatenate(Context& /*ctx*/, const Concatenate& args) {
  std::int64_t begin = 0;
  for (const Matrix<const float>& from : args.from) {
    kernels::assign(from, args.to.slice_cols(begin, begin + from.cols));
    begin += from.cols;
  }
  WEFT_CHECK(begin == args.to.cols, "{} columns into {}", begin, args.to.cols);
}

void split(Context& /*ctx*/, const Split& args) {
  std::int64_t begin = 0;
  for (const Matrix<float>& to : args.to) {
    kernels::assign(args.from.slice_cols(begin, begin + to.cols), to);
    begin += to.cols;
  }
  WEFT_CHECK(begin == args.from.cols, "{} columns out of {}", begin, args.from.cols);
}

}  // namespace cpu
}  // namespace weft::kernels

#endif
