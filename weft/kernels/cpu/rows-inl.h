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
#if HWY_TARGET == HWY_SSE4
    // No instruction here, and Highway's emulation reads infinity as 65536. The half's exponent and
    // mantissa, seen as a float's, are 2^112 too small; the product is exact, subnormals included.
    const hn::Rebind<std::uint32_t, D> d32;
    const auto half = hn::PromoteTo(d32, hn::LoadU(d16, at));
    const auto magnitude = hn::And(half, hn::Set(d32, 0x7FFFU));
    const auto scaled =
        hn::Mul(hn::BitCast(d, hn::ShiftLeft<13>(magnitude)), hn::Set(d, 0x1.0p112F));
    const auto top =
        hn::IfThenElseZero(hn::Gt(magnitude, hn::Set(d32, 0x7BFFU)), hn::Set(d32, 0x7F800000U));
    const auto sign = hn::ShiftLeft<16>(hn::Xor(half, magnitude));
    return hn::BitCast(d, hn::Or(hn::BitCast(d32, scaled), hn::Or(top, sign)));
#else
    const hn::Rebind<hwy::float16_t, D> df16;
    return hn::PromoteTo(d, hn::BitCast(df16, hn::LoadU(d16, at)));
#endif
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

inline constexpr std::int64_t kLine = 64;

/// Asks for the lines of [at, at + bytes), the first 8 or 9 of them: the hardware follows then.
HWY_INLINE void prefetch_row(const void* at, std::int64_t bytes) {
  constexpr std::int64_t kMost = 8 * kLine;
  const char* const row = static_cast<const char*>(at);
  const char* const end = row + (bytes < kMost ? bytes : kMost);
  for (const char* line = row - reinterpret_cast<std::uintptr_t>(row) % kLine; line < end;
       line += kLine) {
    hwy::Prefetch(line);
  }
}

/// The same for a number of bytes that the compiler knows.
template <std::int64_t kBytes>
HWY_INLINE void prefetch_lines(const void* at) {
  constexpr std::int64_t kMost = 8 * kLine;
  constexpr std::int64_t kEnd = kBytes < kMost ? kBytes : kMost;
  const char* const row = static_cast<const char*>(at);
  HWY_UNROLL(8)
  for (std::int64_t offset = 0; offset < kEnd; offset += kLine) {
    hwy::Prefetch(row + offset);
  }
  // A branch on where a row begins is guessed wrong half the time where rows have half a line; one
  // on whether it ends in another line is guessed right.
  constexpr std::int64_t kInLast = kEnd % kLine == 0 ? kLine : kEnd % kLine;
  if (reinterpret_cast<std::uintptr_t>(row) % kLine > kLine - kInLast) {
    hwy::Prefetch(row + kEnd - 1);
  }
}

/// How many rows ahead of the one in hand memory is asked for: what `bytes` per row leave room for
/// in the first cache (a third of 48 KiB), and enough of them that a miss of 100 to 300 ns, or one
/// of the TLB, is over when the row's turn comes.
inline std::int64_t rows_ahead(std::int64_t bytes) {
  constexpr std::int64_t kRoom = 16 << 10;
  constexpr std::int64_t kFewest = 4;
  constexpr std::int64_t kMost = 32;
  const std::int64_t fit = kRoom / (bytes + kLine);
  return fit < kFewest ? kFewest : fit > kMost ? kMost : fit;
}

/// Writes of results: into the caches, or past them.
struct CachedStore {
  template <class D>
  static HWY_INLINE void store(hn::Vec<D> values, D d, float* to) {
    hn::StoreU(values, d, to);
  }
};

/// Does not read the line first, and pushes nothing else out. `to` is aligned to the vector.
struct StreamedStore {
  template <class D>
  static HWY_INLINE void store(hn::Vec<D> values, D d, float* to) {
    hn::Stream(values, d, to);
  }
};

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
