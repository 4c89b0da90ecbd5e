/// The series behind normal initial values (weft/kernels/initial_values.h), in fp64, so that their
/// bits do not depend on a C library. All are evaluated by Horner's rule, each product and each sum
/// rounded; relative errors stay below 2^-50.
///
///   ln x, x = m·2^e with m in [√½, √2):  e·ln 2 + s·Σ kLogSeries[k]·s^2k,  s = (m - 1) / (m + 1)
///   sin x, |x| <= π/4:                   x·Σ kSinSeries[k]·x^2k
///   cos x, |x| <= π/4:                   Σ kCosSeries[k]·x^2k
/// An angle of w / 2^32 turns is cut exactly, as an integer, into quarter turns and a rest.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace weft::kernels {

/// 2/(2k + 1); |s| <= 0.172, so what is left out is below 2^-60 of the sum.
inline constexpr std::array<double, 11> kLogSeries = [] {
  std::array<double, 11> series{};
  for (std::size_t k = 0; k < series.size(); ++k) {
    series[k] = 2.0 / static_cast<double>(2 * k + 1);
  }
  return series;
}();

/// (-1)^k/(2k + 1)!
inline constexpr std::array<double, 8> kSinSeries = [] {
  std::array<double, 8> series{1.0};
  for (std::size_t k = 1; k < series.size(); ++k) {
    series[k] = -series[k - 1] / static_cast<double>(2 * k * (2 * k + 1));
  }
  return series;
}();

/// (-1)^k/(2k)!
inline constexpr std::array<double, 9> kCosSeries = [] {
  std::array<double, 9> series{1.0};
  for (std::size_t k = 1; k < series.size(); ++k) {
    series[k] = -series[k - 1] / static_cast<double>((2 * k - 1) * 2 * k);
  }
  return series;
}();

inline constexpr double kLn2 = 0x1.62e42fefa39efp-1;
inline constexpr double kRadiansPerWord = 0x1.921fb54442d18p+2 * 0x1.0p-32;  ///< 2π / 2^32
inline constexpr std::uint64_t kSqrtHalfBits = 0x3FE6A09E667F3BCD;           ///< √½ as fp64
inline constexpr std::uint64_t kOneBits = 0x3FF0000000000000;
inline constexpr std::uint64_t kMantissaMask = 0x000FFFFFFFFFFFFF;

}  // namespace weft::kernels
