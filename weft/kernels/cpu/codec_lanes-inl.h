// Private to kernels/cpu: one vector of numbers to codes and back, per format. Included once per
// Highway target.
//
// A format has
//   Code           how codes lie in memory: bytes (int4 too, before halves are joined) or 2 bytes
//   kFormat        its name
//   magnitude()    the code of 0 <= y <= the largest code, rounded
//   with_sign()    that code with the sign of the float of these bits
//   special()      the code of an inf or NaN of these bits
//   to_float()     what codes stand for, before the scale

#if defined(WEFT_KERNELS_CPU_CODEC_LANES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_CODEC_LANES_INL_H_
#undef WEFT_KERNELS_CPU_CODEC_LANES_INL_H_
#else
#define WEFT_KERNELS_CPU_CODEC_LANES_INL_H_
#endif

#include <cstdint>
#include <type_traits>

#include <hwy/highway.h>

#include "weft/kernels/codec_formats.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using F32 = hn::ScalableTag<float>;
using U32 = hn::RebindToUnsigned<F32>;
using I32 = hn::RebindToSigned<F32>;
using FVec = hn::Vec<F32>;
using UVec = hn::Vec<U32>;

HWY_INLINE UVec set(std::uint32_t value) {
  return hn::Set(U32(), value);
}

/// Where a format rounds: to nearest with ties to even, or up as often as random bits say.
struct Nearest {
  static constexpr bool kDraws = false;

  template <int kRandomBits>
  static HWY_INLINE UVec round(FVec y, UVec /*words*/) {
    return hn::BitCast(U32(), hn::NearestInt(y));
  }

  static HWY_INLINE UVec round_bf16(UVec bits, UVec /*words*/) {
    const auto odd = hn::And(hn::ShiftRight<16>(bits), set(1));
    return hn::ShiftRight<16>(hn::Add(bits, hn::Add(odd, set(0x7FFF))));
  }
};

struct Stochastic {
  static constexpr bool kDraws = true;

  template <int kRandomBits>
  static HWY_INLINE UVec round(FVec y, UVec words) {
    const F32 d;
    const I32 di;
    const auto few = hn::BitCast(di, hn::And(words, set((1U << kRandomBits) - 1)));
    const auto fraction =
        hn::Mul(hn::ConvertTo(d, few), hn::Set(d, 1.0F / static_cast<float>(1U << kRandomBits)));
    return hn::BitCast(U32(), hn::ConvertTo(di, hn::Add(y, fraction)));
  }

  static HWY_INLINE UVec round_bf16(UVec bits, UVec words) {
    return hn::ShiftRight<16>(hn::Add(bits, hn::And(words, set(0xFFFF))));
  }
};

template <class M, CodecFormat kName>
struct MinifloatLanes {
  using Code = std::conditional_t<M::kBits == 16, std::uint16_t, std::uint8_t>;
  static constexpr CodecFormat kFormat = kName;

  /// y in steps of its exponent, which is exact, rounded. One step more than a mantissa holds is
  /// the next exponent's first code, because codes follow each other.
  template <class Rounding>
  static HWY_INLINE UVec magnitude(FVec y, UVec words) {
    constexpr std::uint32_t kSmallest = 128 - M::kBias;
    const auto exponent =
        hn::Max(hn::ShiftRight<23>(hn::BitCast(U32(), y)), hn::Set(U32(), kSmallest));
    const auto steps_per_one =
        hn::BitCast(F32(), hn::ShiftLeft<23>(hn::Sub(set(254 + M::kMantissa), exponent)));
    const auto steps = Rounding::template round<M::kRandomBits>(hn::Mul(y, steps_per_one), words);
    return hn::Add(steps, hn::ShiftLeft<M::kMantissa>(hn::Sub(exponent, set(kSmallest))));
  }

  static HWY_INLINE UVec with_sign(UVec code, UVec bits) {
    return hn::Or(code, hn::And(hn::ShiftRight<32 - M::kBits>(bits), set(M::kSign)));
  }

  static HWY_INLINE UVec special(UVec bits) {
    if constexpr (M::kTop != TopCodes::kIeee) {
      return with_sign(set(M::kNan), bits);
    }
    const auto is_inf = hn::Eq(hn::And(bits, set(0x7FFFFFFF)), set(0x7F800000));
    return with_sign(hn::IfThenElse(is_inf, set(M::kInfinity), set(M::kNan)), bits);
  }

  /// A code below the first normal one is a count of smallest steps; no subnormal float is used.
  static HWY_INLINE FVec to_float(UVec code) {
    const F32 d;
    const U32 du;
    constexpr auto kBiasBits = static_cast<std::uint32_t>(127 - M::kBias) << 23;
    constexpr auto kStepBits = static_cast<std::uint32_t>(128 - M::kBias - M::kMantissa) << 23;
    const auto size = hn::And(code, set(M::kSign - 1));
    const auto shifted = hn::ShiftLeft<23 - M::kMantissa>(size);
    const auto step = hn::BitCast(d, set(kStepBits));
    const auto small = hn::Mul(hn::ConvertTo(d, hn::BitCast(I32(), size)), step);
    auto value = hn::IfThenElse(hn::Lt(size, set(M::kFirstNormal)), hn::BitCast(du, small),
                                hn::Add(shifted, set(kBiasBits)));
    if constexpr (M::kTop == TopCodes::kIeee) {
      value =
          hn::IfThenElse(hn::Lt(size, set(M::kInfinity)), value, hn::Or(shifted, set(0x7F800000)));
    } else {
      value = hn::IfThenElse(hn::Eq(size, set(M::kNan)), set(0x7FC00000), value);
    }
    const auto sign = hn::ShiftLeft<32 - M::kBits>(hn::And(code, set(M::kSign)));
    return hn::BitCast(d, hn::Or(value, sign));
  }
};

/// Upper halves of floats.
struct Bf16Lanes {
  using Code = std::uint16_t;
  static constexpr CodecFormat kFormat = CodecFormat::kBf16;

  template <class Rounding>
  static HWY_INLINE UVec magnitude(FVec y, UVec words) {
    return Rounding::round_bf16(hn::BitCast(U32(), y), words);
  }

  static HWY_INLINE UVec with_sign(UVec code, UVec bits) {
    return hn::Or(code, hn::And(hn::ShiftRight<16>(bits), set(0x8000)));
  }

  static HWY_INLINE UVec special(UVec bits) {
    const auto is_nan = hn::Gt(hn::And(bits, set(0x7FFFFFFF)), set(0x7F800000));
    const auto upper = hn::ShiftRight<16>(bits);
    return hn::IfThenElse(is_nan, hn::Or(upper, set(0x40)), upper);
  }

  static HWY_INLINE FVec to_float(UVec code) { return hn::BitCast(F32(), hn::ShiftLeft<16>(code)); }
};

/// Two's complement; the lowest code is NaN.
template <int kBits, CodecFormat kName>
struct IntegerLanes {
  using Code = std::uint8_t;
  static constexpr CodecFormat kFormat = kName;
  static constexpr std::uint32_t kMask = (1U << kBits) - 1;

  template <class Rounding>
  static HWY_INLINE UVec magnitude(FVec y, UVec words) {
    return Rounding::template round<16>(y, words);
  }

  static HWY_INLINE UVec with_sign(UVec code, UVec bits) {
    const auto negative = hn::BitCast(U32(), hn::BroadcastSignBit(hn::BitCast(I32(), bits)));
    return hn::And(hn::Sub(hn::Xor(code, negative), negative), set(kMask));
  }

  static HWY_INLINE UVec special(UVec /*bits*/) { return set(1U << (kBits - 1)); }

  static HWY_INLINE FVec to_float(UVec code) {
    const F32 d;
    const U32 du;
    const auto top = hn::ShiftLeft<32 - kBits>(code);
    const auto value = hn::ConvertTo(d, hn::ShiftRight<32 - kBits>(hn::BitCast(I32(), top)));
    const auto is_nan = hn::Eq(top, set(0x80000000));
    return hn::BitCast(d, hn::IfThenElse(is_nan, set(0x7FC00000), hn::BitCast(du, value)));
  }
};

using Fp16Lanes = MinifloatLanes<Fp16Code, CodecFormat::kFp16>;
using E4m3Lanes = MinifloatLanes<E4m3Code, CodecFormat::kFp8E4m3>;
using E5m2Lanes = MinifloatLanes<E5m2Code, CodecFormat::kFp8E5m2>;
using Int8Lanes = IntegerLanes<8, CodecFormat::kInt8>;
using Int4Lanes = IntegerLanes<4, CodecFormat::kInt4>;

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
