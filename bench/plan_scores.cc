#include "bench/plan_scores.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <numeric>

namespace weft::bench {
namespace {

std::vector<double> places(std::span<const double> values) {
  std::vector<std::size_t> order(values.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t i, std::size_t j) { return values[i] < values[j]; });
  std::vector<double> place(values.size());
  for (std::size_t i = 0; i < order.size();) {
    std::size_t end = i;
    while (end < order.size() && values[order[end]] == values[order[i]]) {
      ++end;
    }
    for (std::size_t k = i; k < end; ++k) {
      place[order[k]] = 0.5 * static_cast<double>(i + end - 1);
    }
    i = end;
  }
  return place;
}

}  // namespace

double rank_correlation(std::span<const double> a, std::span<const double> b) {
  const std::vector<double> x = places(a);
  const std::vector<double> y = places(b);
  const double mean = 0.5 * (static_cast<double>(x.size()) - 1.0);
  double xy = 0.0, xx = 0.0, yy = 0.0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mean) * (y[i] - mean);
    xx += (x[i] - mean) * (x[i] - mean);
    yy += (y[i] - mean) * (y[i] - mean);
  }
  return xx > 0.0 && yy > 0.0 ? xy / std::sqrt(xx * yy) : std::numeric_limits<double>::quiet_NaN();
}

PairCount& PairCount::operator+=(const PairCount& other) {
  right += other.right;
  all += other.all;
  return *this;
}

PairCount ordered_pairs(std::span<const double> a, std::span<const double> b, double apart) {
  PairCount count;
  for (std::size_t i = 0; i < b.size(); ++i) {
    for (std::size_t j = 0; j < i; ++j) {
      if (std::max(b[i], b[j]) <= (1.0 + apart) * std::min(b[i], b[j])) {
        continue;
      }
      count.all += 1.0;
      count.right += (a[i] < a[j]) == (b[i] < b[j]) && a[i] != a[j] ? 1.0 : 0.0;
    }
  }
  return count;
}

}  // namespace weft::bench
