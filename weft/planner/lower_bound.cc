#include <algorithm>
#include <cstdint>
#include <numeric>
#include <vector>

#include "weft/base/at.h"
#include "weft/planner/partition.h"
#include "weft/planner/partition_state.h"

namespace weft::planner {
namespace {

Ticks ceil_div(Ticks a, Ticks b) {
  return (a + b - 1) / b;
}

/// How high `total` fills bins that stand at `base`, rounded up.
Ticks water_level(std::vector<Ticks> base, Ticks total) {
  std::sort(base.begin(), base.end());
  Ticks below = 0;  ///< what the bins filled so far hold
  for (std::size_t n = 1; n <= base.size(); ++n) {
    below += base[n - 1];
    const Ticks level = ceil_div(below + total, static_cast<Ticks>(n));
    if (n == base.size() || level <= base[n]) {
      return level;
    }
  }
  return 0;
}

std::vector<Ticks> bases(const Instance& instance, const Range& range) {
  std::vector<Ticks> out;
  for (auto b = static_cast<std::int32_t>(range.begin); b < range.end; ++b) {
    out.push_back(instance.base(b));
  }
  return out;
}

/// Of mk + 1 items, m + 1 share a bin; at best the smallest of the largest ones.
Ticks crowding(const Instance& instance, const std::vector<Ticks>& sums) {
  Ticks most = 0;
  const auto bins = static_cast<std::size_t>(instance.bins());
  for (std::size_t m = 1; m * bins + 1 < sums.size(); ++m) {
    most = std::max(most, sums[m * bins + 1] - sums[m * bins - m]);
  }
  return most;
}

/// Whether L2 allows all items in k bins of this size. Items fall into those above size - p, which
/// share a bin with none of p or more; those above size / 2; and those of p or more, which fill
/// what the second kind leaves.
class Packing {
 public:
  Packing(const Instance& instance, const std::vector<Ticks>& sums)
      : instance_(instance), sums_(sums) {}

  [[nodiscard]] bool allows(Ticks size) const {
    const std::int32_t halves = count_above(size / 2);  // 2c > size for integers c
    if (halves > instance_.bins()) {
      return false;
    }
    std::int32_t alone = halves;  // items above size - p, ever fewer
    for (std::int32_t i = halves; i < instance_.items(); ++i) {
      const Ticks p = instance_.cost(i);
      const bool last = i + 1 == instance_.items() || instance_.cost(i + 1) < p;
      while (last && alone > 0 && instance_.cost(alone - 1) <= size - p) {
        --alone;
      }
      if (last && !allows(size, halves, alone, i + 1)) {
        return false;
      }
    }
    return true;
  }

 private:
  /// With p the cost of item end - 1.
  [[nodiscard]] bool allows(Ticks size,
                            std::int32_t halves,
                            std::int32_t alone,
                            std::int32_t end) const {
    const Ticks left = size * (halves - alone) - (sums_[at(halves)] - sums_[at(alone)]);
    const Ticks small = sums_[at(end)] - sums_[at(halves)];
    const Ticks more = small > left ? ceil_div(small - left, size) : 0;
    return halves + more <= instance_.bins();
  }

  /// Items that cost more.
  [[nodiscard]] std::int32_t count_above(Ticks cost) const {
    std::int32_t low = 0;
    std::int32_t high = instance_.items();
    while (low < high) {
      const std::int32_t middle = low + (high - low) / 2;
      if (instance_.cost(middle) > cost) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    return low;
  }

  const Instance& instance_;
  const std::vector<Ticks>& sums_;
};

/// The least size, to about 2^-30 of it, that the packing bound does not rule out.
Ticks packing_bound(const Instance& instance, const std::vector<Ticks>& sums, Ticks known) {
  const Packing packing(instance, sums);
  Ticks low = known;
  Ticks high = 2 * known;  // greedy without constraints is not above
  if (known == 0 || packing.allows(known)) {
    return known;
  }
  while (high - low > std::max<Ticks>(1, low >> 30)) {
    const Ticks middle = low + (high - low) / 2;
    (packing.allows(middle) ? high : low) = middle;
  }
  return low + 1;
}

}  // namespace

Ticks lower_bound_ticks(const Instance& instance) {
  std::vector<Ticks> sums = {0};
  for (std::int32_t i = 0; i < instance.items(); ++i) {
    sums.push_back(sums.back() + instance.cost(i));
  }
  const std::vector<Ticks> all = bases(instance, {0, instance.bins()});
  Ticks level = std::max(water_level(all, sums.back()), *std::max_element(all.begin(), all.end()));
  for (const Instance::RangeItems& work : instance.by_range()) {
    Ticks total = 0;
    Ticks most = 0;
    for (const std::int32_t i : work.items) {
      total += instance.cost(i);
      most = std::max(most, instance.cost(i));
    }
    const std::vector<Ticks> here = bases(instance, work.range);
    level = std::max(
        {level, water_level(here, total), most + *std::min_element(here.begin(), here.end())});
  }
  // What counts items regards every bin as the emptiest.
  const Ticks base = *std::min_element(all.begin(), all.end());
  const Ticks items_only = std::max(crowding(instance, sums), level - base);
  return base + packing_bound(instance, sums, items_only);
}

double lower_bound(const Problem& problem) {
  const Instance instance(problem);
  return instance.cost_of(lower_bound_ticks(instance));
}

}  // namespace weft::planner
