#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "weft/planner/partition.h"
#include "weft/planner/partition_state.h"

namespace weft::planner {
namespace {

/// Items on either side of the best partner of a swap that are tried, should it not fit.
constexpr int kPartners = 4;
/// Least costly bins that are asked to take something, before the search gives up.
constexpr int kColdBins = 1024;

/// What leaves the costliest bin, and what comes back for it (or nothing).
struct Step {
  std::int32_t out = kNone;
  std::int32_t in = kNone;
  Ticks unevenness = 0;  ///< between the two bins afterwards
};

class LocalSearch {
 public:
  LocalSearch(const Instance& instance, State& state) : instance_(instance), state_(state) {
    for (std::int32_t b = 0; b < instance.bins(); ++b) {
      order_.emplace(state.load(b), b);
    }
  }

  void run(std::int64_t max_steps, Ticks good_enough) {
    for (std::int64_t step = 0; step < max_steps; ++step) {
      if (order_.rbegin()->first <= good_enough || !step_down(order_.rbegin()->second)) {
        return;
      }
    }
  }

 private:
  /// The first bin, from the least costly on, that can take cost from the costliest.
  bool step_down(std::int32_t hot) {
    int bins = 0;
    for (const auto& [load, cold] : order_) {
      if (load >= state_.load(hot) || ++bins > kColdBins) {
        return false;
      }
      const Step best = best_step(hot, cold);
      if (best.out != kNone) {
        apply(best, hot, cold);
        return true;
      }
    }
    return false;
  }

  [[nodiscard]] Step best_step(std::int32_t hot, std::int32_t cold) const {
    const Ticks gap = state_.load(hot) - state_.load(cold);
    Step best{.unevenness = gap};
    for (const std::int32_t out : state_.held(hot)) {
      const Ticks cost = instance_.cost(out);
      if (cost < gap && std::abs(gap - 2 * cost) < best.unevenness && state_.fits(out, cold)) {
        best = {.out = out, .unevenness = std::abs(gap - 2 * cost)};
      }
      try_swaps(hot, cold, out, gap, best);
    }
    return best;
  }

  /// Swaps for items about half the gap less costly.
  void try_swaps(
      std::int32_t hot, std::int32_t cold, std::int32_t out, Ticks gap, Step& best) const {
    const std::vector<std::int32_t>& held = state_.held(cold);
    const Ticks wanted = instance_.cost(out) - gap / 2;
    const auto middle = std::partition_point(
        held.begin(), held.end(), [&](std::int32_t i) { return instance_.cost(i) > wanted; });
    const auto first = middle - std::min<std::ptrdiff_t>(kPartners, middle - held.begin());
    const auto last = middle + std::min<std::ptrdiff_t>(kPartners, held.end() - middle);
    for (auto in = first; in != last; ++in) {
      const Ticks moved = instance_.cost(out) - instance_.cost(*in);
      const Ticks unevenness = std::abs(gap - 2 * moved);
      if (moved > 0 && moved < gap && unevenness < best.unevenness && state_.fits(out, cold, *in) &&
          state_.fits(*in, hot, out)) {
        best = {.out = out, .in = *in, .unevenness = unevenness};
      }
    }
  }

  void apply(const Step& step, std::int32_t hot, std::int32_t cold) {
    order_.erase({state_.load(hot), hot});
    order_.erase({state_.load(cold), cold});
    state_.take(step.out);
    if (step.in != kNone) {
      state_.take(step.in);
      state_.put(step.in, hot);
    }
    state_.put(step.out, cold);
    order_.emplace(state_.load(hot), hot);
    order_.emplace(state_.load(cold), cold);
  }

  const Instance& instance_;
  State& state_;
  std::set<std::pair<Ticks, std::int32_t>> order_;  ///< of bins
};

/// What of two partitions is better comes first.
auto rank_of(const Partition& p) {
  std::int64_t missing = 0;
  Bytes most{};
  for (const Misfit& misfit : p.misfits) {
    missing += misfit.missing;
  }
  for (const Bytes& bytes : p.bytes) {
    for (std::size_t t = 0; t < kTiers; ++t) {
      most[t] = std::max(most[t], bytes[t]);
    }
  }
  return std::tuple(p.misfits.size(), missing, p.max_cost(), most);
}

/// Shares of memory: of the roomiest bin, the scarcer kind.
class MemoryShare {
 public:
  explicit MemoryShare(const Problem& problem) {
    for (const Bin& bin : problem.bins) {
      for (std::size_t t = 0; t < kTiers; ++t) {
        room_[t] = std::max(room_[t], bin.capacity[t]);
      }
    }
  }

  double operator()(const Bytes& bytes) const {
    double most = 0.0;
    for (std::size_t t = 0; t < kTiers; ++t) {
      most = std::max(most, static_cast<double>(bytes[t]) / static_cast<double>(room_[t]));
    }
    return most;
  }

 private:
  Bytes room_{1, 1};
};

/// From `state`, whose misfits are given a place first.
Partition improved(const Instance& instance, State state, Ticks bound, const SearchLimits& limits) {
  state.place_rest();
  const auto size = static_cast<std::int64_t>(instance.items()) + instance.bins();
  const auto slack = static_cast<Ticks>(static_cast<double>(bound) * limits.good_enough);
  LocalSearch search(instance, state);
  search.run(limits.max_steps > 0 ? limits.max_steps : 4 * size, bound + slack);
  return state.result();
}

/// As if memory were the cost, then improved for the cost. Items are in the instance's order, not
/// the problem's, since those of equal memory tie.
Partition by_memory(const Problem& problem,
                    Partition (*algorithm)(const Problem&),
                    const SearchLimits& limits) {
  const Instance instance(problem);
  const MemoryShare share(problem);
  Problem memory{.items = {}, .bins = problem.bins};
  for (Bin& bin : memory.bins) {
    bin.cost = share(bin.bytes);
  }
  for (std::int32_t i = 0; i < instance.items(); ++i) {
    memory.items.push_back(problem.items[instance.position(i)]);
    memory.items.back().cost = share(instance.bytes(i));
  }
  const Partition placed = improve(memory, algorithm(memory));
  Partition start;
  start.bin.resize(problem.items.size());
  for (std::int32_t i = 0; i < instance.items(); ++i) {
    start.bin[instance.position(i)] = placed.bin[static_cast<std::size_t>(i)];
  }
  return improve(problem, start, limits);
}

}  // namespace

Partition improve(const Problem& problem, const Partition& start, const SearchLimits& limits) {
  const Instance instance(problem);
  return improved(instance, state_of(instance, start.bin), lower_bound_ticks(instance), limits);
}

Partition best_of(const Problem& problem, const SearchLimits& limits) {
  const Instance instance(problem);
  const Ticks bound = lower_bound_ticks(instance);
  Partition best = improved(instance, greedy_state(instance), bound, limits);
  const auto consider = [&](Partition other) {
    if (rank_of(other) < rank_of(best)) {
      best = std::move(other);
    }
  };
  consider(improved(instance, differencing_state(instance), bound, limits));
  if (!best.feasible()) {
    consider(by_memory(problem, greedy, limits));
    consider(by_memory(problem, differencing, limits));
  }
  return best;
}

}  // namespace weft::planner
