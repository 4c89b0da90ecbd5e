// exp(x): x = k ln 2 + r with |r| <= ln 2 / 2, then the Taylor series of exp(r) to r^13 (the next
// term is below 2^-57) and a scale by 2^k. ln 2 is split in two so that k ln 2 is exact.
// ln(1 + x) = 2 artanh(s), s = x / (2 + x) <= 1/3: s² <= 1/9, and terms to s^35 reach 2^-57.
#include "weft/kernels/loss.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "weft/base/error.h"

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

namespace cpu {

void bce_loss(Context& /*ctx*/, const BceLoss& args) {
  const std::int64_t tasks = args.logits.cols;
  WEFT_CHECK(args.labels.rows == args.logits.rows && args.labels.cols == tasks,
             "labels [{}, {}] for logits [{}, {}]", args.labels.rows, args.labels.cols,
             args.logits.rows, tasks);
  WEFT_CHECK(args.dlogits.data == nullptr || static_cast<std::int64_t>(args.scale.size()) == tasks,
             "{} scales for {} tasks", args.scale.size(), tasks);
  if (args.loss_sums != nullptr) {
    std::fill_n(args.loss_sums, tasks, 0.0);
  }
  std::int64_t first_bad = -1;
  for (std::int64_t s = 0; s < args.logits.rows; ++s) {
    for (std::int64_t t = 0; t < tasks; ++t) {
      const double z = args.logits.row(s)[t];
      const double y = args.labels.row(s)[t];
      const double weight = args.weights.data == nullptr ? 1.0 : args.weights.row(s)[t];
      const double loss = bce_with_logits(z, y);
      const double p = sigmoid(z);
      if (first_bad < 0 && !(std::isfinite(loss) && std::isfinite(weight))) {
        first_bad = s;
      }
      if (args.loss_sums != nullptr) {
        args.loss_sums[t] += weight * loss;
      }
      if (args.dlogits.data != nullptr) {
        args.dlogits.row(s)[t] = static_cast<float>(
            static_cast<double>(args.scale[static_cast<std::size_t>(t)]) * weight * (p - y));
      }
      if (args.probabilities.data != nullptr) {
        args.probabilities.row(s)[t] = static_cast<float>(p);
      }
    }
  }
  if (args.first_bad != nullptr) {
    *args.first_bad = first_bad;
  }
}

}  // namespace cpu
}  // namespace weft::kernels
