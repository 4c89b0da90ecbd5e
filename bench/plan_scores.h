/// How good predictions are, beside what was measured.
#pragma once

#include <span>
#include <vector>

namespace weft::bench {

/// Spearman's rank correlation; equal values share their ranks. NaN below two values, or where one
/// side is constant. O(n log n).
double rank_correlation(std::span<const double> a, std::span<const double> b);

/// Pairs that `a` and `b` order alike, among those that differ in `b` by more than `apart` (0.1:
/// by 10 % of the smaller).
struct PairCount {
  double right = 0.0;
  double all = 0.0;

  PairCount& operator+=(const PairCount& other);
};

PairCount ordered_pairs(std::span<const double> a, std::span<const double> b, double apart);

}  // namespace weft::bench
