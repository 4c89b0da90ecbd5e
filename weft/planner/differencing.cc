#include <algorithm>
#include <cstdint>
#include <queue>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/planner/partition.h"
#include "weft/planner/partition_state.h"

namespace weft::planner {
namespace {

/// Items that will share a bin: their sum, and a list through Differencing::next_.
struct Sum {
  Ticks ticks = 0;
  std::int32_t head = kNone;
  std::int32_t tail = kNone;
  std::int32_t bin = kNone;  ///< fixed where a bin holds something already
};

/// A partial solution: sums in decreasing order, for different bins; those missing up to the number
/// of bins are empty. Of a full one the smallest is subtracted from all.
using Tuple = std::vector<Sum>;

class Differencing {
 public:
  Differencing(const Instance& instance, State& state)
      : instance_(instance), state_(state), next_(at(instance.items()), kNone) {}

  /// Spreads items that may go to this range over it. What breaks a constraint is left nowhere.
  void spread(const Instance::RangeItems& work) {
    bins_ = static_cast<std::size_t>(work.range.size());
    add_held(work.range);
    add_items(work.items);
    while (open_.size() > 1) {
      const std::int32_t first = pop();
      const std::int32_t second = pop();
      add(join(std::move(tuples_[at(first)]), std::move(tuples_[at(second)])));
    }
    settle(tuples_[at(pop())], work.range);
    tuples_.clear();
  }

 private:
  using Open = std::pair<Ticks, std::int32_t>;  ///< spread, minus the tuple's index

  std::int32_t pop() {
    const std::int32_t number = -open_.top().second;
    open_.pop();
    return number;
  }

  void add(Tuple sums) {
    if (sums.size() == bins_) {
      const Ticks least = sums.back().ticks;
      for (std::size_t i = 0; i < sums.size() && least != 0; ++i) {
        sums[i].ticks -= least;
      }
    }
    const auto number = static_cast<std::int32_t>(tuples_.size());
    open_.emplace(sums.front().ticks, -number);
    tuples_.push_back(std::move(sums));
  }

  /// Bins that hold something start as one full solution, whose sums know their bins.
  void add_held(const Range& range) {
    Tuple sums;
    bool any = false;
    for (auto b = static_cast<std::int32_t>(range.begin); b < range.end; ++b) {
      sums.push_back({.ticks = state_.load(b), .bin = b});
      any = any || state_.load(b) != 0 || !state_.held(b).empty();
    }
    if (any) {
      std::stable_sort(sums.begin(), sums.end(), more);
      add(std::move(sums));
    }
  }

  /// One solution for every item, or for every group as far as there are bins.
  void add_items(const std::vector<std::int32_t>& items) {
    std::vector<Tuple> groups(at(instance_.groups()));
    for (const std::int32_t i : items) {
      const Sum sum{.ticks = instance_.cost(i), .head = i, .tail = i};
      const std::int32_t group = instance_.group(i);
      if (group != kNone && groups[at(group)].size() < bins_) {
        groups[at(group)].push_back(sum);
      } else {
        add({sum});
      }
    }
    for (Tuple& sums : groups) {
      if (!sums.empty()) {
        add(std::move(sums));
      }
    }
  }

  static bool more(const Sum& a, const Sum& b) { return a.ticks > b.ticks; }

  Sum together(const Sum& a, const Sum& b) {
    Sum sum{.ticks = a.ticks + b.ticks,
            .head = a.head == kNone ? b.head : a.head,
            .tail = b.tail == kNone ? a.tail : b.tail,
            .bin = a.bin == kNone ? b.bin : a.bin};
    if (a.head != kNone && b.head != kNone) {
      next_[at(a.tail)] = b.head;
    }
    return sum;
  }

  /// The j-th largest of `a` with the j-th smallest of `b`, empty sums included.
  Tuple join(Tuple a, Tuple b) {
    const std::size_t both = a.size() + b.size() > bins_ ? a.size() + b.size() - bins_ : 0;
    Tuple shared;
    shared.reserve(both);
    for (std::size_t j = 0; j < both; ++j) {
      shared.push_back(together(a[a.size() - both + j], b[b.size() - 1 - j]));
    }
    std::stable_sort(shared.begin(), shared.end(), more);
    a.resize(a.size() - both);
    b.resize(b.size() - both);
    return merged(merged(std::move(a), b), shared);
  }

  /// Of equal sums those of `a` first. Little time where `b` is short and small.
  static Tuple merged(Tuple a, const Tuple& b) {
    const auto middle = static_cast<std::ptrdiff_t>(a.size());
    a.insert(a.end(), b.begin(), b.end());
    std::inplace_merge(a.begin(), a.begin() + middle, a.end(), more);
    return a;
  }

  /// Sums that know no bin take the range's in order.
  void settle(const Tuple& sums, const Range& range) {
    auto bin = static_cast<std::int32_t>(range.begin);
    for (const Sum& sum : sums) {
      place(sum, sum.bin == kNone ? bin++ : sum.bin);
    }
  }

  void place(const Sum& sum, std::int32_t bin) {
    std::vector<std::int32_t> items;
    for (std::int32_t i = sum.head; i != kNone; i = next_[at(i)]) {
      items.push_back(i);
    }
    std::sort(items.begin(), items.end());
    for (const std::int32_t i : items) {
      if (state_.fits(i, bin)) {
        state_.put(i, bin);
      }
    }
  }

  const Instance& instance_;
  State& state_;
  std::vector<std::int32_t> next_;  ///< of an item: the next with which it shares a bin
  std::size_t bins_ = 0;
  std::vector<Tuple> tuples_;       ///< in the order of making, which breaks ties
  std::priority_queue<Open> open_;  ///< largest spread first, then the older
};

}  // namespace

State differencing_state(const Instance& instance) {
  State state(instance);
  Differencing algorithm(instance, state);
  for (const Instance::RangeItems& work : instance.by_range()) {
    algorithm.spread(work);
  }
  state.place_rest();
  return state;
}

Partition differencing(const Problem& problem) {
  return differencing_state(Instance(problem)).result();
}

}  // namespace weft::planner
