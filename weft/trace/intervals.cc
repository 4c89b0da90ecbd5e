#include "weft/trace/intervals.h"

#include <algorithm>
#include <cstddef>

namespace weft::trace {

Moments unite(std::vector<Interval> intervals) {
  std::sort(intervals.begin(), intervals.end(), [](const Interval& a, const Interval& b) {
    return a.begin != b.begin ? a.begin < b.begin : a.end < b.end;
  });
  Moments result;
  for (const Interval& interval : intervals) {
    if (interval.end <= interval.begin) {
      continue;
    }
    if (!result.empty() && interval.begin <= result.back().end) {
      result.back().end = std::max(result.back().end, interval.end);
    } else {
      result.push_back(interval);
    }
  }
  return result;
}

Moments unite(const Moments& a, const Moments& b) {
  std::vector<Interval> all = a;
  all.insert(all.end(), b.begin(), b.end());
  return unite(std::move(all));
}

Moments intersect(const Moments& a, const Moments& b) {
  Moments result;
  std::size_t i = 0;
  std::size_t j = 0;
  while (i < a.size() && j < b.size()) {
    const Interval common{std::max(a[i].begin, b[j].begin), std::min(a[i].end, b[j].end)};
    if (common.begin < common.end) {
      result.push_back(common);
    }
    (a[i].end < b[j].end ? i : j) += 1;
  }
  return result;
}

Moments subtract(const Moments& a, const Moments& b) {
  Moments result;
  std::size_t j = 0;
  for (Interval rest : a) {
    while (j < b.size() && b[j].end <= rest.begin) {
      ++j;
    }
    for (std::size_t k = j; k < b.size() && b[k].begin < rest.end; ++k) {
      if (rest.begin < b[k].begin) {
        result.push_back({rest.begin, b[k].begin});
      }
      rest.begin = std::min(rest.end, b[k].end);
    }
    if (rest.begin < rest.end) {
      result.push_back(rest);
    }
  }
  return result;
}

std::int64_t length(const Moments& moments) {
  std::int64_t total = 0;
  for (const Interval& interval : moments) {
    total += interval.length();
  }
  return total;
}

}  // namespace weft::trace
