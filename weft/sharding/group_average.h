/// Private to sharding/: what both averages of rows over replica groups do with a value, whether
/// the groups send floats (replica_average.h) or encoded changes (coded_average.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/tensor/dtype.h"

namespace weft::sharding {

/// Groups send at most so much of their rows at a time.
inline constexpr std::int64_t kRoundBytes = std::int64_t{64} << 20;

/// sums = the values of group 0, sums += those of another: values(i) for i in [0, count). A sum
/// begins with its first term, so that minus zeros stay.
template <typename Values>
void add_term(std::size_t group, std::int64_t count, const Values& values, double* sums) {
  for (std::int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values(i));
    sums[i] = group == 0 ? value : sums[i] + value;
  }
}

/// Stochastic rounding to the type of a row's elements.
inline BFloat16 rounded(BFloat16 /*type*/, float value, std::uint32_t random) {
  return to_bfloat16_stochastic(value, random);
}

inline Float16 rounded(Float16 /*type*/, float value, std::uint32_t random) {
  return to_float16_stochastic(value, random);
}

}  // namespace weft::sharding
