// An exponent of all ones carries into the sign when one is added to it; no other does. What
// carried is collected with "or", so that the loop has no branch.
#include "weft/kernels/finite.h"

#include <bit>
#include <cstddef>
#include <cstdint>
#include <span>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/finite.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace {

constexpr std::uint32_t kExponent = 0x7f800000U;
constexpr std::uint32_t kOne = 0x00800000U;
constexpr std::uint32_t kCarried = 0x80000000U;

bool all_finite(const float* values, std::int64_t count) {
  const hn::RebindToUnsigned<FloatTag> bits;
  const auto exponent = hn::Set(bits, kExponent);
  const auto one = hn::Set(bits, kOne);
  auto carried = hn::Zero(bits);
  constexpr auto kStep = static_cast<std::int64_t>(kWidth);
  std::int64_t i = 0;
  for (; i + kStep <= count; i += kStep) {
    const auto word = hn::BitCast(bits, hn::LoadU(FloatTag(), values + i));
    carried = hn::Or(carried, hn::Add(hn::And(word, exponent), one));
  }
  std::uint32_t rest = 0;
  for (; i < count; ++i) {
    rest |= (std::bit_cast<std::uint32_t>(values[i]) & kExponent) + kOne;
  }
  const hn::RebindToSigned<FloatTag> signs;
  return (rest & kCarried) == 0 &&
         hn::AllFalse(signs, hn::Lt(hn::BitCast(signs, carried), hn::Zero(signs)));
}

}  // namespace

std::int64_t first_bad_on_target(std::span<const SampleValues> values, std::int64_t end) {
  std::int64_t bad = end;
  for (std::int64_t s = 0; s < bad; ++s) {  // a sample's rows lie side by side
    for (const SampleValues& rows : values) {
      if (rows.offsets == nullptr && !all_finite(rows.values.row(s), rows.values.cols)) {
        bad = s;
        break;
      }
    }
  }
  for (const SampleValues& rows : values) {
    for (std::int64_t s = 0; rows.offsets != nullptr && s < bad; ++s) {
      const std::int64_t count = (rows.offsets[s + 1] - rows.offsets[s]) * rows.values.cols;
      if (count > 0 && !all_finite(rows.values.row(rows.offsets[s]), count)) {
        bad = s;
      }
    }
  }
  return bad;
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(first_bad_on_target);

namespace cpu {

void first_bad_sample(Context& /*ctx*/, const FirstBadSample& args) {
  const std::int64_t end = *args.first < 0 ? args.samples : *args.first;
  const std::int64_t bad = HWY_DYNAMIC_DISPATCH(first_bad_on_target)(args.values, end);
  *args.first = bad == args.samples ? -1 : bad;
}

}  // namespace cpu
}  // namespace weft::kernels

#endif
