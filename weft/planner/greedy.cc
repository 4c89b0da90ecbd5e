#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numeric>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/planner/partition.h"
#include "weft/planner/partition_state.h"

namespace weft::planner {
namespace {

void check_keys(const Problem& problem, std::span<const double> keys) {
  if (keys.size() != problem.items.size()) {
    fail(ErrorCode::kUsage, "partition: {} keys for {} items; give one for each", keys.size(),
         problem.items.size());
  }
  for (std::size_t i = 0; i < keys.size(); ++i) {
    if (!std::isfinite(keys[i]) || keys[i] < 0.0) {
      fail(ErrorCode::kUsage, "partition: the key of item {} is {}; keys are finite and >= 0", i,
           keys[i]);
    }
  }
}

/// The bin with the least of `loads` among those the item fits in.
std::int32_t least(const State& state,
                   const Instance& instance,
                   std::int32_t item,
                   const std::vector<double>& loads) {
  const Range& range = instance.range(item);
  std::int32_t best = kNone;
  for (auto b = static_cast<std::int32_t>(range.begin); b < range.end; ++b) {
    if ((best == kNone || loads[at(b)] < loads[at(best)]) && state.fits(item, b)) {
      best = b;
    }
  }
  return best;
}

}  // namespace

State greedy_state(const Instance& instance) {
  State state(instance);
  state.place_rest();
  return state;
}

Partition greedy(const Problem& problem) {
  return greedy_state(Instance(problem)).result();
}

Partition greedy_by(const Problem& problem, std::span<const double> keys) {
  const Instance instance(problem);
  check_keys(problem, keys);
  State state(instance);
  std::vector<std::int32_t> order(at(instance.items()));
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
    return keys[instance.position(a)] > keys[instance.position(b)];
  });
  std::vector<double> loads(at(instance.bins()), 0.0);
  for (const std::int32_t i : order) {
    const std::int32_t bin = least(state, instance, i, loads);
    if (bin != kNone) {
      state.put(i, bin);
      loads[at(bin)] += keys[instance.position(i)];
    }
  }
  state.place_rest();
  return state.result();
}

Partition at_random(const Problem& problem, std::uint64_t seed) {
  const Instance instance(problem);
  State state(instance);
  const std::uint64_t key = random_key(seed, RandomPurpose::kShuffle, "planner.at_random");
  const auto items = static_cast<std::uint64_t>(instance.items());
  const Permutation order(std::max<std::uint64_t>(items, 1), key);
  for (std::uint64_t n = 0; n < items; ++n) {
    const auto i = static_cast<std::int32_t>(order(n));
    const Range& range = instance.range(i);
    const auto size = static_cast<std::uint64_t>(range.size());
    // The first that fits, from a random bin on.
    const std::uint64_t first = philox(key, n, 1)[0] * size >> 32;
    for (std::uint64_t step = 0; step < size; ++step) {
      const auto b =
          static_cast<std::int32_t>(range.begin) + static_cast<std::int32_t>((first + step) % size);
      if (state.fits(i, b)) {
        state.put(i, b);
        break;
      }
    }
  }
  state.place_rest();
  return state.result();
}

}  // namespace weft::planner
