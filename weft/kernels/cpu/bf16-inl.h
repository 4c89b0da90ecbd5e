// Private to kernels/cpu: vectors of fp32 from and to fp32 or bf16 memory. Included once per
// Highway target.

#if defined(WEFT_KERNELS_CPU_BF16_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_BF16_INL_H_
#undef WEFT_KERNELS_CPU_BF16_INL_H_
#else
#define WEFT_KERNELS_CPU_BF16_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

#include "weft/tensor/dtype.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;

/// fp32 bits rounded to bf16, ties to even, in the upper half of each word; the lower half is
/// undefined. NaN stays NaN.
template <class DU>
HWY_INLINE hn::Vec<DU> upper_half(DU d, hn::Vec<DU> bits) {
  const auto odd = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 1U));
  const auto rounded = hn::Add(bits, hn::Add(odd, hn::Set(d, 0x7FFFU)));
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFU));
  const auto is_nan = hn::Gt(magnitude, hn::Set(d, 0x7F800000U));
  return hn::IfThenElse(is_nan, hn::Or(bits, hn::Set(d, 0x400000U)), rounded);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const float* from) {
  return hn::LoadU(d, from);
}

template <class D>
HWY_INLINE hn::Vec<D> load(D d, const BFloat16* from) {
  const hn::RebindToUnsigned<D> words;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto half = hn::LoadU(halves, reinterpret_cast<const std::uint16_t*>(from));
  return hn::BitCast(d, hn::ShiftLeft<16>(hn::PromoteTo(words, half)));
}

template <class D>
HWY_INLINE void store(hn::Vec<D> value, D d, float* to) {
  hn::StoreU(value, d, to);
}

template <class D>
HWY_INLINE void store(hn::Vec<D> value, D /*d*/, BFloat16* to) {
  const hn::RebindToUnsigned<D> words;
  const hn::RebindToSigned<D> ints;
  const hn::Rebind<std::uint16_t, D> halves;
  const auto upper = upper_half(words, hn::BitCast(words, value));
  const auto half = hn::BitCast(ints, hn::ShiftRight<16>(upper));
  hn::StoreU(hn::DemoteTo(halves, half), halves, reinterpret_cast<std::uint16_t*>(to));
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
