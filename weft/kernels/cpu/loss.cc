// exp(x): x = k ln 2 + r with |r| <= ln 2 / 2, then the Taylor series of exp(r) to r^13 (the next
// term is below 2^-57) and a scale by 2^k. ln 2 is split in two so that k ln 2 is exact.
// ln(1 + x) = 2 artanh(s), s = x / (2 + x) <= 1/3: s² <= 1/9, and terms to s^35 reach 2^-57.
#include "weft/kernels/loss.h"

#include <bit>
#include <cmath>

namespace weft::kernels {

namespace {

constexpr double kLog2e = 1.4426950408889634;
constexpr double kLn2High = 0x1.62e42fee00000p-1;
constexpr double kLn2Low = 0x1.a39ef35793c76p-33;

// 2^k as a double for k in the normal range.
double power_of_two(int k) {
  return std::bit_cast<double>(static_cast<std::uint64_t>(k + 1023) << 52);
}

}  // namespace

double exact_exp(double x) {
  if (std::isnan(x)) {
    return x;
  }
  if (x > 709.78) {
    return HUGE_VAL;
  }
  if (x < -745.2) {
    return 0.0;
  }
  const double scaled = x * kLog2e;
  const int k = static_cast<int>(scaled + (scaled < 0 ? -0.5 : 0.5));
  const double r = (x - k * kLn2High) - k * kLn2Low;
  double sum = 1.0;
  for (int n = 13; n >= 1; --n) {
    sum = 1.0 + sum * (r / n);
  }
  // In two steps: 2^k itself may be subnormal or, for k = 1024, too large.
  const int half = k / 2;
  return sum * power_of_two(half) * power_of_two(k - half);
}

double exact_log1p(double x) {
  const double s = x / (2.0 + x);
  const double square = s * s;
  double sum = 0.0;
  for (int n = 35; n >= 3; n -= 2) {
    sum = (sum + 1.0 / n) * square;
  }
  return 2.0 * (s + s * sum);
}

double sigmoid(double z) {
  if (z >= 0.0) {
    return 1.0 / (1.0 + exact_exp(-z));
  }
  const double e = exact_exp(z);
  return e / (1.0 + e);
}

double bce_with_logits(double z, double y) {
  const double positive = z > 0.0 ? z : 0.0;
  return positive - z * y + exact_log1p(exact_exp(z > 0.0 ? -z : z));
}

}  // namespace weft::kernels
