// An exponent of all ones carries into the sign when one is added to it; no other does. What
// carried is collected with "or", so that the loop has no branch and is vectorised.

#include "weft/kernels/finite.h"

#include <bit>
#include <cstdint>

namespace weft::kernels::cpu {
namespace {

bool all_finite(const float* values, std::int64_t count) {
  std::uint32_t carried = 0;
  for (std::int64_t i = 0; i < count; ++i) {
    carried |= (std::bit_cast<std::uint32_t>(values[i]) & 0x7f800000U) + 0x00800000U;
  }
  return (carried & 0x80000000U) == 0;
}

}  // namespace

void first_bad_sample(Context& /*ctx*/, const FirstBadSample& args) {
  std::int64_t bad = *args.first < 0 ? args.samples : *args.first;
  for (std::int64_t s = 0; s < bad; ++s) {  // a sample's rows lie side by side
    for (const SampleValues& rows : args.values) {
      if (rows.offsets == nullptr && !all_finite(rows.values.row(s), rows.values.cols)) {
        bad = s;
        break;
      }
    }
  }
  for (const SampleValues& rows : args.values) {
    for (std::int64_t s = 0; rows.offsets != nullptr && s < bad; ++s) {
      const std::int64_t count = (rows.offsets[s + 1] - rows.offsets[s]) * rows.values.cols;
      if (count > 0 && !all_finite(rows.values.row(rows.offsets[s]), count)) {
        bad = s;
      }
    }
  }
  *args.first = bad == args.samples ? -1 : bad;
}

}  // namespace weft::kernels::cpu
