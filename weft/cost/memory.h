/// Bytes of memory as the allocators count them (weft/tensor/memory_use.h): what blocks of given
/// sizes take from the system.
///
/// The rules are those of weft/layout/blocks.h; tests compare them with the objects. Pure values.
#pragma once

#include <cmath>

#include "weft/layout/blocks.h"

namespace weft::cost {

inline constexpr double kFloatBytes = 4.0;

/// The next whole number of units.
inline double round_up(double x, double unit) {
  return std::ceil(x / unit) * unit;
}

using layout::block_bytes;

}  // namespace weft::cost
