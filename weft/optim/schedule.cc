#include "weft/optim/schedule.h"

#include <algorithm>
#include <cmath>

namespace weft::optim {

namespace {

double power(double base, double exponent) {
  constexpr double kLargestWhole = 64.0;
  if (exponent != std::floor(exponent) || exponent < 0.0 || exponent > kLargestWhole) {
    return std::pow(base, exponent);
  }
  double result = 1.0;
  for (int i = 0; i < static_cast<int>(exponent); ++i) {
    result *= base;
  }
  return result;
}

double decay(const spec::Schedule& schedule, std::int64_t step) {
  if (schedule.type == spec::ScheduleKind::kConstant || step <= schedule.decay_start) {
    return 1.0;
  }
  const std::int64_t since = step - schedule.decay_start;
  if (since >= schedule.decay_steps) {
    return schedule.final_factor;
  }
  const double left = 1.0 - static_cast<double>(since) / static_cast<double>(schedule.decay_steps);
  return schedule.final_factor + (1.0 - schedule.final_factor) * power(left, schedule.power);
}

}  // namespace

double learning_rate_factor(const spec::Schedule& schedule, std::int64_t step) {
  const double warmup = step < schedule.warmup_steps
                            ? static_cast<double>(std::max<std::int64_t>(step, 0)) /
                                  static_cast<double>(schedule.warmup_steps)
                            : 1.0;
  return warmup * decay(schedule, step);
}

}  // namespace weft::optim
