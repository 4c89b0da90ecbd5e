/// Wall-clock measurements of short pieces of work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <vector>

namespace weft::bench {

inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Requires at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Median seconds of a pass. The first, which meets unmapped pages, is not counted; then at least
/// three, and more until `budget_s` is used up.
template <typename Pass>
double median_pass_s(double budget_s, const Pass& pass) {
  pass();
  std::vector<double> times;
  const auto begin = std::chrono::steady_clock::now();
  do {
    const auto start = std::chrono::steady_clock::now();
    pass();
    times.push_back(seconds_since(start));
  } while (times.size() < 3 || seconds_since(begin) < budget_s);
  return median(std::move(times));
}

}  // namespace weft::bench
