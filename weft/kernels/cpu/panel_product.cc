// for each strip of b, 16 columns, which stays in the first caches:
//   for each six rows of a:  12 vectors of sums in registers, one chain over k
//
// A strip is read in order. Of panels of 64 columns, of which a kernel reads 16, all lines would
// meet in a quarter of the first cache's sets: 60 to 65 GFLOP/s in place of 90 on a Zen 3 core.

#include "weft/kernels/cpu/panel_product.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

// AVX2 is all that these products are for, so builds that leave it out of other kernels have it
// here.
#if defined(__x86_64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS (HWY_AVX3 | HWY_AVX3_DL)
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/panel_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/layout/products.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using layout::kStrip;

using SumTag = hn::CappedTag<float, 8>;
using Sums = hn::Vec<SumTag>;

inline constexpr std::int64_t kSumLanes = hn::MaxLanes(SumTag());
inline constexpr std::int64_t kSumVectors = kStrip / kSumLanes;

/// The columns of a strip that the product has, and its biases, as many as the strip has columns.
struct StripOut {
  const PanelProduct& product;
  std::int64_t cols;
  const float* bias;
};

/// Writes a row of sums.
HWY_INLINE void finish_row(const StripOut& strip, const Sums* sums, float* out) {
  const SumTag d;
  HWY_ALIGN float beside[kStrip] = {};
  const bool is_whole = strip.cols == kStrip;
  const std::size_t bytes = static_cast<std::size_t>(strip.cols) * sizeof(float);
  float* const to = is_whole ? out : beside;
  if (!is_whole && strip.product.adds) {
    std::memcpy(beside, out, bytes);
  }
  for (std::int64_t v = 0; v < kSumVectors; ++v) {
    Sums value = sums[v];
    if (strip.product.adds) {
      value = hn::Add(hn::LoadU(d, to + v * kSumLanes), value);
    }
    if (strip.bias != nullptr) {
      value = hn::Add(value, hn::LoadU(d, strip.bias + v * kSumLanes));
    }
    if (strip.product.activation == Activation::kRelu) {
      value = hn::Max(value, hn::Zero(d));
    }
    hn::StoreU(value, d, to + v * kSumLanes);
  }
  if (!is_whole) {
    std::memcpy(out, beside, bytes);
  }
}

/// Multiplies kRows rows of a by a strip.
template <int kRows>
HWY_INLINE void multiply_rows(const StripOut& strip, const float* a, const float* b, float* out) {
  const SumTag d;
  const std::int64_t k = strip.product.k;
  Sums sums[kRows][kSumVectors];
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kSumVectors; ++v) {
      sums[r][v] = hn::Zero(d);
    }
  }
  for (std::int64_t p = 0; p < k; ++p) {
    Sums of_b[kSumVectors];
    HWY_UNROLL(4)
    for (int v = 0; v < kSumVectors; ++v) {
      of_b[v] = hn::Load(d, b + p * kStrip + v * kSumLanes);
    }
    HWY_UNROLL(6)
    for (int r = 0; r < kRows; ++r) {
      const auto of_a = hn::Set(d, a[r * k + p]);
      HWY_UNROLL(4)
      for (int v = 0; v < kSumVectors; ++v) {
        sums[r][v] = hn::MulAdd(of_a, of_b[v], sums[r][v]);
      }
    }
  }
  HWY_UNROLL(6)
  for (int r = 0; r < kRows; ++r) {
    finish_row(strip, sums[r], out + r * strip.product.n);
  }
}

void multiply_strips(const PanelProduct& product, const float* a, const float* b, float* out) {
  const auto [m, n, k, bias, activation, adds] = product;
  const std::int64_t strip_floats = layout::round_up(k, layout::kFp32RowUnit) * kStrip;
  HWY_ALIGN float last_bias[kStrip] = {};
  for (std::int64_t col = 0; col < n; col += kStrip, b += strip_floats) {
    StripOut strip{product, std::min(kStrip, n - col), bias == nullptr ? nullptr : bias + col};
    if (strip.bias != nullptr && strip.cols < kStrip) {
      std::memcpy(last_bias, strip.bias, static_cast<std::size_t>(strip.cols) * sizeof(float));
      strip.bias = last_bias;
    }
    std::int64_t row = 0;
    const auto multiply = [&]<int kRows>() HWY_ATTR {
      for (; row + kRows <= m; row += kRows) {
        multiply_rows<kRows>(strip, a + row * k, b, out + row * n + col);
      }
    };
    multiply.template operator()<6>();
    multiply.template operator()<4>();
    multiply.template operator()<2>();
    multiply.template operator()<1>();
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(multiply_strips);

void multiply_panels(const PanelProduct& product, const float* a, const float* b, float* out) {
  HWY_DYNAMIC_DISPATCH(multiply_strips)(product, a, b, out);
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
