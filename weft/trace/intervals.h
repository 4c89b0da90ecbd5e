/// Sets of moments: half-open intervals of nanoseconds.
#pragma once

#include <cstdint>
#include <vector>

namespace weft::trace {

/// The moments from `begin` to just before `end`, in nanoseconds.
struct Interval {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t length() const { return end - begin; }

  friend bool operator==(const Interval&, const Interval&) = default;
};

/// Disjoint, not touching, in order of time, none empty.
using Moments = std::vector<Interval>;

/// The union of any intervals; those that end before they begin are left out.
Moments unite(std::vector<Interval> intervals);

/// Both are Moments, and so are the results.
Moments unite(const Moments& a, const Moments& b);
Moments intersect(const Moments& a, const Moments& b);
Moments subtract(const Moments& a, const Moments& b);

/// Returns the sum of the lengths, in nanoseconds.
std::int64_t length(const Moments& moments);

}  // namespace weft::trace
