/// Wall-clock measurements of short pieces of work.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>
#include <vector>

namespace weft::train {

/// Returns the seconds from `start` to now.
inline double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

/// Requires at least one value.
inline double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

/// Median seconds of a pass, each after a `prepare` that does not count. The first pass, which
/// meets unmapped pages, is not counted; then at least three, and more until `budget_s` is used up.
template <typename Prepare, typename Pass>
double median_pass_s(double budget_s, const Prepare& prepare, const Pass& pass) {
  prepare();
  pass();
  std::vector<double> times;
  const auto begin = std::chrono::steady_clock::now();
  do {
    prepare();
    const auto start = std::chrono::steady_clock::now();
    pass();
    times.push_back(seconds_since(start));
  } while (times.size() < 3 || seconds_since(begin) < budget_s);
  return median(std::move(times));
}

/// The same where nothing is to be prepared.
template <typename Pass>
double median_pass_s(double budget_s, const Pass& pass) {
  return median_pass_s(budget_s, [] {}, pass);
}

}  // namespace weft::train
