// Sums over 16 virtual lanes: the same order of addition whatever the width of a register.
// Included once per Highway target (no include guard of the usual kind).
#if defined(WEFT_KERNELS_CPU_LANES_INL_H) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_LANES_INL_H
#undef WEFT_KERNELS_CPU_LANES_INL_H
#else
#define WEFT_KERNELS_CPU_LANES_INL_H
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline constexpr std::int64_t kLanes = 16;

using FloatTag = hn::CappedTag<float, 16>;
using FloatVec = hn::Vec<FloatTag>;
inline constexpr std::size_t kWidth = hn::MaxLanes(FloatTag());
inline constexpr std::size_t kVectors = 16 / kWidth;

// 16 floats in as many registers as they need.
struct Lanes {
  FloatVec v[kVectors];
};

HWY_INLINE Lanes zero_lanes() {
  Lanes x;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kVectors; ++i) {
    x.v[i] = hn::Zero(FloatTag());
  }
  return x;
}

HWY_INLINE Lanes load_lanes(const float* p) {
  Lanes x;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kVectors; ++i) {
    x.v[i] = hn::LoadU(FloatTag(), p + i * kWidth);
  }
  return x;
}

HWY_INLINE void store_lanes(const Lanes& x, float* p) {
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kVectors; ++i) {
    hn::StoreU(x.v[i], FloatTag(), p + i * kWidth);
  }
}

// sum + a * b, fused where the target has it.
HWY_INLINE Lanes mul_add(const Lanes& a, const Lanes& b, const Lanes& sum) {
  Lanes x;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kVectors; ++i) {
    x.v[i] = hn::MulAdd(a.v[i], b.v[i], sum.v[i]);
  }
  return x;
}

HWY_INLINE Lanes mul_add(float a, const Lanes& b, const Lanes& sum) {
  const FloatVec broadcast = hn::Set(FloatTag(), a);
  Lanes x;
  HWY_UNROLL(4)
  for (std::size_t i = 0; i < kVectors; ++i) {
    x.v[i] = hn::MulAdd(broadcast, b.v[i], sum.v[i]);
  }
  return x;
}

// The lanes of one register, added in pairs that lie half a register apart.
template <class Tag, class Vec>
HWY_INLINE float sum_vector(Tag tag, Vec v) {
  if constexpr (hn::MaxLanes(tag) > 4) {
    const hn::Half<Tag> half;
    return sum_vector(half, hn::Add(hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  } else if constexpr (hn::MaxLanes(tag) == 4) {
    const Vec by2 = hn::Add(v, hn::Shuffle1032(v));
    return hn::GetLane(hn::Add(by2, hn::Shuffle2301(by2)));
  } else {
    static_assert(hn::MaxLanes(tag) == 1, "registers of 1 or of at least 4 floats");
    return hn::GetLane(v);
  }
}

// Adds lanes in pairs (l, l + 8), (l, l + 4), (l, l + 2), (l, l + 1).
HWY_INLINE float sum_lanes(Lanes x) {
  HWY_UNROLL(2)
  for (std::size_t half = kVectors / 2; half > 0; half /= 2) {
    HWY_UNROLL(2)
    for (std::size_t i = 0; i < half; ++i) {
      x.v[i] = hn::Add(x.v[i], x.v[i + half]);
    }
  }
  return sum_vector(FloatTag(), x.v[0]);
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
