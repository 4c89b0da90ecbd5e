/// Powers with a whole exponent.
#pragma once

#include <cstdint>

namespace weft::optim {

/// base^exponent by squarings and multiplications, each rounded once: the same bits on every
/// machine and with every C library, whose pow() chooses its code by the processor. Requires
/// exponent >= 0; 64 squarings at most.
constexpr double whole_power(double base, std::int64_t exponent) {
  double result = 1.0;
  for (; exponent > 0; exponent /= 2) {
    if (exponent % 2 == 1) {
      result *= base;
    }
    base *= base;
  }
  return result;
}

}  // namespace weft::optim
