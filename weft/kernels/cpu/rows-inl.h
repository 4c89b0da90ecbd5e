// Private to kernels/cpu: rows as vectors of fp32. Included once per Highway target.

#if defined(WEFT_KERNELS_CPU_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_ROWS_INL_H_
#undef WEFT_KERNELS_CPU_ROWS_INL_H_
#else
#define WEFT_KERNELS_CPU_ROWS_INL_H_
#endif

#include <cstddef>
#include <cstdint>

#include <hwy/cache_control.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// How elements of a row are read; reading is exact for every type.
struct Fp32Row {
  using Element = float;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* at) {
    return hn::LoadU(d, at);
  }
};

struct Bf16Row {
  using Element = std::uint16_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* at) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<std::uint32_t, D> d32;
    return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, at))));
  }
};

struct Fp16Row {
  using Element = std::uint16_t;

  template <class D>
  static HWY_INLINE hn::Vec<D> load(D d, const Element* at) {
    const hn::Rebind<std::uint16_t, D> d16;
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, at)));
  }
};

/// Calls body(tag, i) for vectors that cover [begin, cols): wide ones, then 4 columns, then single
/// ones. The body does the same to every column, so the width changes no bit.
template <class Body>
HWY_INLINE void for_columns(std::int64_t begin, std::int64_t cols, const Body& body) {
  const hn::ScalableTag<float> wide;
  const hn::CappedTag<float, 4> four;
  const hn::CappedTag<float, 1> one;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(wide));
  std::int64_t i = begin;
  for (; i + lanes <= cols; i += lanes) {
    body(wide, i);
  }
  for (; i + 4 <= cols; i += 4) {
    body(four, i);
  }
  for (; i < cols; ++i) {
    body(one, i);
  }
}

/// Asks for the lines of [at, at + bytes), the first 8 of them: the hardware follows then.
inline void prefetch_row(const void* at, std::int64_t bytes) {
  constexpr std::int64_t kLine = 64;
  constexpr std::int64_t kMost = 8 * kLine;
  const std::int64_t end = bytes < kMost ? bytes : kMost;
  for (std::int64_t offset = 0; offset < end; offset += kLine) {
    hwy::Prefetch(static_cast<const char*>(at) + offset);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
