// Private to kernels/cpu: small blocks turned (transposed) in registers. Included once per Highway
// target.

#if defined(WEFT_KERNELS_CPU_TURN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_TURN_INL_H_
#undef WEFT_KERNELS_CPU_TURN_INL_H_
#else
#define WEFT_KERNELS_CPU_TURN_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Turns the words of four rows within each 128 bits: store(v, j) gets the j-th words of blocks.
template <class D, class V, class Store>
HWY_INLINE void turn_words(D d, V row0, V row1, V row2, V row3, const Store& store) {
  const hn::Repartition<std::uint64_t, D> wide;
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, row0, row1));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, row0, row1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, row2, row3));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, row2, row3));
  store(hn::BitCast(d, hn::InterleaveLower(wide, low01, low23)), 0);
  store(hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23)), 1);
  store(hn::BitCast(d, hn::InterleaveLower(wide, high01, high23)), 2);
  store(hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23)), 3);
}

/// to[j · to_stride + i] = from[i · from_stride + j] for i, j below 4. Word has 32 bits.
template <typename Word>
HWY_INLINE void turn_4x4(const Word* from,
                         std::int64_t from_stride,
                         Word* to,
                         std::int64_t to_stride) {
  const hn::FixedTag<Word, 4> d;
  turn_words(d, hn::LoadU(d, from), hn::LoadU(d, from + from_stride),
             hn::LoadU(d, from + 2 * from_stride), hn::LoadU(d, from + 3 * from_stride),
             [&](auto v, std::int64_t j) HWY_ATTR { hn::StoreU(v, d, to + j * to_stride); });
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
