// for each block of 64 or 16 columns of b, which stays in the first two caches:
//   ask for the next block meanwhile, and for the next rows of a
//   for each few rows of a:  8 to 24 vectors of sums in registers, one chain over k
//
// A strip is read in order. On AVX2, of panels of 64 columns of which a kernel reads 16, all lines
// would meet in a quarter of the first cache's sets: 60 to 65 GFLOP/s in place of 90 on a Zen 3
// core.

#include "weft/kernels/cpu/panel_product.h"

#include <algorithm>
#include <cstddef>
#include <cstring>

// AVX2 and AVX-512 are all that these products are for, so builds that leave them out of other
// kernels have them here.
#if defined(__x86_64__)
#undef HWY_DISABLED_TARGETS
#define HWY_DISABLED_TARGETS HWY_AVX3_DL
#endif

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/panel_product.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/layout/products.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using layout::kPanel;
using layout::kStrip;

using SumTag = hn::CappedTag<float, 16>;
using Sums = hn::Vec<SumTag>;

inline constexpr std::int64_t kLanes = hn::MaxLanes(SumTag());
inline constexpr bool kIsWide = kLanes == 16;                      // with 32 registers
inline constexpr std::int64_t kBlock = kIsWide ? kPanel : kStrip;  // columns at once
inline constexpr int kMostVectors = kBlock / kLanes;

/// Rows of a at once, of so many vectors of sums each: chains enough to hide the latency of an
/// addition, and on AVX2 and AVX-512 no more than there are registers.
constexpr int rows_at_once(int vectors) {
  constexpr int kRows[] = {0, 8, 8, 8, 6};
  return kIsWide ? kRows[vectors] : 6;
}

/// Columns of b of one block, and their biases, whole vectors of them.
struct ColumnBlock {
  const PanelProduct& product;
  std::int64_t cols;
  const float* bias;
  const float* b;
};

/// The processor is asked for this beforehand: the rows of a that come next, which are the first
/// ones again where fewer than a whole set is left, and lines of the next block of columns.
struct Ahead {
  const float* rows;
  const float* next;
  const float* end;

  /// Asks for some of it, while `kRows` rows are multiplied by 16 rows of b from row p on.
  template <int kRows>
  HWY_INLINE void ask(std::int64_t p, std::int64_t k) {
    constexpr std::int64_t kLine = 16;
    HWY_UNROLL(16)
    for (int r = 0; r < kRows; ++r) {
      __builtin_prefetch(rows + r * k + p);
    }
    if (next < end) {
      __builtin_prefetch(next, 0, 2);
      __builtin_prefetch(next + kLine, 0, 2);
      next += 2 * kLine;
    }
  }
};

/// Returns what becomes of a vector of sums; `before` returns the old elements.
template <typename Before>
HWY_INLINE Sums
finished(const ColumnBlock& block, Sums sums, std::int64_t col, const Before& before) {
  const SumTag d;
  Sums value = sums;
  if (block.product.adds) {
    value = hn::Add(before(), value);
  }
  if (block.bias != nullptr) {
    value = hn::Add(value, hn::LoadU(d, block.bias + col));
  }
  if (block.product.activation == Activation::kRelu) {
    value = hn::Max(value, hn::Zero(d));
  }
  return value;
}

/// Writes sums of the last columns, which are fewer than a vector has.
HWY_INLINE void finish_some(const ColumnBlock& block, Sums sums, std::int64_t col, float* out) {
  const SumTag d;
  const auto count = static_cast<std::size_t>(block.cols - col);
  if constexpr (kIsWide) {
    const auto mask = hn::FirstN(d, count);
    const auto before = [&]() HWY_ATTR { return hn::MaskedLoad(mask, d, out); };
    hn::BlendedStore(finished(block, sums, col, before), mask, d, out);
  } else {
    HWY_ALIGN float beside[kLanes] = {};
    const auto before = [&]() HWY_ATTR {
      std::memcpy(beside, out, count * sizeof(float));
      return hn::Load(d, beside);
    };
    hn::Store(finished(block, sums, col, before), d, beside);
    std::memcpy(out, beside, count * sizeof(float));
  }
}

/// Writes a row of sums.
template <int kVectors>
HWY_INLINE void finish_row(const ColumnBlock& block, const Sums* sums, float* out) {
  const SumTag d;
  HWY_UNROLL(4)
  for (int v = 0; v < kVectors; ++v) {
    const std::int64_t col = v * kLanes;
    const std::int64_t cols = block.cols - col;
    float* const to = out + col;
    if (cols >= kLanes) {
      const auto before = [&]() HWY_ATTR { return hn::LoadU(d, to); };
      hn::StoreU(finished(block, sums[v], col, before), d, to);
    } else if (cols > 0) {
      finish_some(block, sums[v], col, to);
    }
  }
}

/// Multiplies kRows rows of a by a block of kVectors vectors of columns.
template <int kRows, int kVectors>
HWY_INLINE void multiply_rows(const ColumnBlock& block, const float* a, Ahead& ahead, float* out) {
  const SumTag d;
  constexpr std::int64_t kChunk = 16;
  const std::int64_t k = block.product.k;
  const std::int64_t b_row = block.product.strip;
  Sums sums[kRows][kVectors];
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    HWY_UNROLL(4)
    for (int v = 0; v < kVectors; ++v) {
      sums[r][v] = hn::Zero(d);
    }
  }
  const float* b = block.b;
  for (std::int64_t chunk = 0; chunk < k; chunk += kChunk) {
    ahead.ask<kRows>(chunk, k);
    const std::int64_t end = std::min(k, chunk + kChunk);
    for (std::int64_t p = chunk; p < end; ++p, b += b_row) {
      Sums of_b[kVectors];
      HWY_UNROLL(4)
      for (int v = 0; v < kVectors; ++v) {
        of_b[v] = hn::Load(d, b + v * kLanes);
      }
      HWY_UNROLL(16)
      for (int r = 0; r < kRows; ++r) {
        const auto of_a = hn::Set(d, a[r * k + p]);
        HWY_UNROLL(4)
        for (int v = 0; v < kVectors; ++v) {
          sums[r][v] = hn::MulAdd(of_a, of_b[v], sums[r][v]);
        }
      }
    }
  }
  HWY_UNROLL(16)
  for (int r = 0; r < kRows; ++r) {
    finish_row<kVectors>(block, sums[r], out + r * block.product.n);
  }
}

/// Multiplies all rows of a by a block.
template <int kVectors>
void multiply_block(const ColumnBlock& block, const float* a, Ahead ahead, float* out) {
  const std::int64_t m = block.product.m;
  const std::int64_t k = block.product.k;
  std::int64_t row = 0;
  const auto multiply = [&]<int kRows>() HWY_ATTR {
    for (; row + kRows <= m; row += kRows) {
      ahead.rows = a + (row + 2 * kRows <= m ? row + kRows : 0) * k;
      multiply_rows<kRows, kVectors>(block, a + row * k, ahead, out + row * block.product.n);
    }
  };
  multiply.template operator()<rows_at_once(kVectors)>();
  multiply.template operator()<4>();
  multiply.template operator()<2>();
  multiply.template operator()<1>();
}

void multiply_blocks(const PanelProduct& product, const float* a, const float* b, float* out) {
  const std::int64_t n = product.n;
  const std::int64_t strip = product.strip;
  const std::int64_t strip_floats = layout::round_up(product.k, layout::kFp32RowUnit) * strip;
  const std::int64_t width = std::min(kBlock, strip);
  const auto at = [&](std::int64_t col) { return b + col / strip * strip_floats + col % strip; };
  HWY_ALIGN float last_bias[kBlock] = {};
  for (std::int64_t col = 0; col < n; col += width) {
    ColumnBlock block{product, std::min(width, n - col),
                      product.bias == nullptr ? nullptr : product.bias + col, at(col)};
    if (block.bias != nullptr && block.cols < width) {
      std::memcpy(last_bias, block.bias, static_cast<std::size_t>(block.cols) * sizeof(float));
      block.bias = last_bias;
    }
    const float* const next = at(col + width);
    const bool is_followed = width == strip && col + width < n;
    const Ahead ahead{nullptr, next, is_followed ? next + strip_floats : next};
    const std::int64_t vectors = (block.cols + kLanes - 1) / kLanes;
    if constexpr (kIsWide) {
      switch (vectors) {
        case 1:
          multiply_block<1>(block, a, ahead, out + col);
          break;
        case 2:
          multiply_block<2>(block, a, ahead, out + col);
          break;
        case 3:
          multiply_block<3>(block, a, ahead, out + col);
          break;
        default:
          multiply_block<4>(block, a, ahead, out + col);
      }
    } else {
      multiply_block<kMostVectors>(block, a, ahead, out + col);
    }
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(multiply_blocks);

void multiply_panels(const PanelProduct& product, const float* a, const float* b, float* out) {
  HWY_DYNAMIC_DISPATCH(multiply_blocks)(product, a, b, out);
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
