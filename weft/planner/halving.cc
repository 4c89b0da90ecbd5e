#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/planner/partition.h"
#include "weft/planner/partition_state.h"

namespace weft::planner {
namespace {

constexpr double kFall = 0.70710678118654752;  // of the threshold, per round
constexpr int kFruitless = 3;                  // rounds in a row that improve nothing

/// Items that are being halved.
class Pieces {
 public:
  Pieces(const Problem& problem, const Halve& halve, std::int64_t max_items)
      : problem_(problem), halve_(halve), max_items_(max_items) {
    for (std::size_t i = 0; i < problem_.items.size(); ++i) {
      const std::int64_t group = problem_.items[i].group;
      next_group_ = std::max(next_group_, group + 1);
      if (group != kNoGroup) {
        ++members_[group];
      }
    }
    whole_.assign(problem_.items.size(), false);
  }

  /// Halves every item for which `wanted` holds, and its halves, as long as it can. The costliest
  /// go first while there is room for more items.
  template <typename Wanted>
  void halve_while(const Wanted& wanted) {
    while (true) {
      std::vector<std::size_t> round;
      for (std::size_t i = 0; i < problem_.items.size(); ++i) {
        if (!whole_[i] && wanted(problem_.items[i])) {
          round.push_back(i);
        }
      }
      std::stable_sort(round.begin(), round.end(), [&](std::size_t a, std::size_t b) {
        return problem_.items[a].cost > problem_.items[b].cost;
      });
      std::int64_t done = 0;
      for (const std::size_t i : round) {
        done += halve(i) ? 1 : 0;
      }
      if (done == 0) {
        return;
      }
    }
  }

  [[nodiscard]] const Problem& problem() const { return problem_; }

  [[nodiscard]] std::int64_t halvings() const { return halvings_; }

  /// Of the bins, if everything is spread evenly.
  [[nodiscard]] double mean() const {
    double sum = 0.0;
    for (const Item& item : problem_.items) {
      sum += item.cost;
    }
    for (const Bin& bin : problem_.bins) {
      sum += bin.cost;
    }
    return sum / static_cast<double>(problem_.bins.size());
  }

 private:
  /// False where the item stays as it is, now and later.
  bool halve(std::size_t i) {
    const Item item = problem_.items[i];
    const auto items = static_cast<std::int64_t>(problem_.items.size());
    std::optional<std::array<Item, 2>> halves;
    if (items < max_items_ && group_has_room(item)) {
      halves = halve_(item);
    }
    if (!halves) {
      whole_[i] = true;
      return false;
    }
    const std::int64_t group = item.group == kNoGroup ? next_group_++ : item.group;
    members_[group] += item.group == kNoGroup ? 2 : 1;
    for (Item& half : *halves) {
      half.group = group;
      half.bins = item.bins;
    }
    problem_.items[i] = (*halves)[0];
    problem_.items.push_back((*halves)[1]);
    whole_.push_back(false);
    ++halvings_;
    return true;
  }

  [[nodiscard]] bool group_has_room(const Item& item) const {
    const std::int64_t bins =
        item.bins.empty() ? static_cast<std::int64_t>(problem_.bins.size()) : item.bins.size();
    const auto found = members_.find(item.group);
    const std::int64_t members = found == members_.end() ? 1 : found->second;
    return members < bins;
  }

  Problem problem_;
  const Halve& halve_;
  std::int64_t max_items_;
  std::int64_t next_group_ = 0;
  std::map<std::int64_t, std::int64_t> members_;  ///< items of each group
  std::vector<bool> whole_;                       ///< cannot be halved
  std::int64_t halvings_ = 0;
};

bool fits_an_empty_bin(const Item& item, const std::vector<Bin>& bins) {
  const auto all = static_cast<std::int64_t>(bins.size());
  const Range range = item.bins.empty() ? Range{0, all} : item.bins;
  for (std::int64_t b = range.begin; b < range.end; ++b) {
    const Bin& bin = bins[static_cast<std::size_t>(b)];
    bool fits = true;
    for (std::size_t t = 0; t < kTiers; ++t) {
      fits = fits && (item.bytes[t] == 0 || item.bytes[t] <= bin.capacity[t] - bin.bytes[t]);
    }
    if (fits) {
      return true;
    }
  }
  return false;
}

bool better(const Partition& a, const Partition& b) {
  return std::pair(a.misfits.size(), a.max_cost()) < std::pair(b.misfits.size(), b.max_cost());
}

}  // namespace

Halved halve_hottest(const Problem& problem, const Halve& halve, const HalvingLimits& limits) {
  check(problem);
  const auto items = static_cast<std::int64_t>(problem.items.size());
  const auto bins = static_cast<std::int64_t>(problem.bins.size());
  Pieces pieces(problem, halve, limits.max_items > 0 ? limits.max_items : items + 8 * bins);
  pieces.halve_while(
      [&](const Item& item) { return !fits_an_empty_bin(item, pieces.problem().bins); });
  Halved best{.items = pieces.problem().items,
              .partition = best_of(pieces.problem(), limits.search),
              .halvings = pieces.halvings()};
  double threshold = pieces.mean();
  int fruitless = 0;
  for (std::int64_t round = 0; round < limits.rounds && fruitless < kFruitless; ++round) {
    const bool even =
        best.partition.max_cost() <= best.partition.mean_cost() * (1.0 + limits.good_enough);
    if (best.partition.feasible() && even) {
      break;
    }
    const std::int64_t before = pieces.halvings();
    pieces.halve_while([&](const Item& item) { return item.cost > threshold; });
    threshold *= kFall;
    if (pieces.halvings() == before) {
      continue;
    }
    Partition made = best_of(pieces.problem(), limits.search);
    ++fruitless;
    if (better(made, best.partition)) {
      best = {.items = pieces.problem().items,
              .partition = std::move(made),
              .halvings = pieces.halvings()};
      fruitless = 0;
    }
  }
  return best;
}

}  // namespace weft::planner
