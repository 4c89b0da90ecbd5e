#include <algorithm>
#include <cstdint>
#include <map>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "weft/base/error.h"
#include "weft/planner/partition.h"
#include "weft/planner/partition_state.h"

namespace weft::planner {
namespace {

constexpr double kFall = 0.84;         // of the threshold, per round
constexpr double kSame = 1e-9;         // costs no further apart are equal
constexpr int kFruitless = 6;          // rounds in a row that improve nothing
constexpr std::size_t kHotShare = 64;  // one bin in so many counts as hot

/// Items that are being halved.
class Pieces {
 public:
  enum class Why { kRoom, kBalance };

  struct Limits {
    std::int64_t max_items = 0;
    double most_left = 1.0;  ///< of an item's cost, in its costlier half, for balance
  };

  Pieces(const Problem& problem, const Halve& halve, const Limits& limits)
      : problem_(problem), halve_(&halve), limits_(limits) {
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
  void halve_while(const Wanted& wanted, Why why) {
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
        done += halve(i, why) ? 1 : 0;
      }
      if (done == 0) {
        return;
      }
    }
  }

  /// False where the item stays as it is, now and later.
  bool halve(std::size_t i, Why why) {
    const Item item = problem_.items[i];
    const auto items = static_cast<std::int64_t>(problem_.items.size());
    std::optional<std::array<Item, 2>> halves;
    if (items < limits_.max_items && group_has_room(item)) {
      halves = (*halve_)(item);
    }
    if (halves && why == Why::kBalance &&
        std::max((*halves)[0].cost, (*halves)[1].cost) > limits_.most_left * item.cost) {
      halves.reset();
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

  /// It stays as it is, now and later.
  void keep(std::size_t i) { whole_[i] = true; }

  [[nodiscard]] bool kept(std::size_t i) const { return whole_[i]; }

  [[nodiscard]] const Problem& problem() const { return problem_; }

  [[nodiscard]] std::int64_t halvings() const { return halvings_; }

 private:
  [[nodiscard]] bool group_has_room(const Item& item) const {
    const std::int64_t bins =
        item.bins.empty() ? static_cast<std::int64_t>(problem_.bins.size()) : item.bins.size();
    const auto found = members_.find(item.group);
    const std::int64_t members = found == members_.end() ? 1 : found->second;
    return members < bins;
  }

  Problem problem_;
  const Halve* halve_;
  Limits limits_;
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

double costliest(const std::vector<Item>& items) {
  double most = 0.0;
  for (const Item& item : items) {
    most = std::max(most, item.cost);
  }
  return most;
}

bool is_even(const Partition& p, double slack) {
  return p.feasible() && p.max_cost() <= p.mean_cost() * (1.0 + slack);
}

/// Items and where they are.
struct Attempt {
  Pieces pieces;
  Partition partition;
};

/// By more than the rounding of costs, which differs with the number of items.
bool better(const Partition& a, const Partition& b) {
  if (a.misfits.size() != b.misfits.size()) {
    return a.misfits.size() < b.misfits.size();
  }
  return a.max_cost() < b.max_cost() * (1.0 - kSame);
}

/// By a falling threshold, each time partitioned afresh.
void halve_many(Attempt& best, const HalvingLimits& limits) {
  Pieces pieces = best.pieces;
  double threshold = costliest(pieces.problem().items);
  int fruitless = 0;
  for (std::int64_t round = 0; round < limits.rounds && fruitless < kFruitless; ++round) {
    if (is_even(best.partition, limits.good_enough)) {
      return;
    }
    threshold *= kFall;
    const std::int64_t before = pieces.halvings();
    pieces.halve_while([&](const Item& item) { return item.cost > threshold; },
                       Pieces::Why::kBalance);
    if (pieces.halvings() == before) {
      continue;
    }
    Partition made = best_of(pieces.problem(), limits.search);
    ++fruitless;
    if (better(made, best.partition)) {
      best = {.pieces = pieces, .partition = std::move(made)};
      fruitless = 0;
    }
  }
}

/// Items to halve next: of each of the costliest bins the costliest that can be.
std::vector<std::size_t> hottest_items(const Attempt& attempt) {
  const Partition& p = attempt.partition;
  std::vector<std::size_t> bins(p.cost.size());
  std::iota(bins.begin(), bins.end(), std::size_t{0});
  std::stable_sort(bins.begin(), bins.end(),
                   [&](std::size_t a, std::size_t b) { return p.cost[a] > p.cost[b]; });
  bins.resize(std::max<std::size_t>(1, bins.size() / kHotShare));
  std::vector<std::size_t> best(p.cost.size(), p.bin.size());
  for (std::size_t i = 0; i < p.bin.size(); ++i) {
    if (p.bin[i] != kNowhere && !attempt.pieces.kept(i)) {
      std::size_t& of_bin = best[static_cast<std::size_t>(p.bin[i])];
      const std::vector<Item>& items = attempt.pieces.problem().items;
      if (of_bin == p.bin.size() || items[i].cost > items[of_bin].cost) {
        of_bin = i;
      }
    }
  }
  std::vector<std::size_t> out;
  for (const std::size_t b : bins) {
    if (best[b] != p.bin.size()) {
      out.push_back(best[b]);
    }
  }
  return out;
}

/// Of the costliest bins only, the rest staying where it is.
void halve_few(Attempt& best, const HalvingLimits& limits) {
  int fruitless = 0;
  for (std::int64_t round = 0; round < limits.rounds && fruitless < kFruitless; ++round) {
    if (is_even(best.partition, limits.good_enough)) {
      return;
    }
    const std::vector<std::size_t> chosen = hottest_items(best);
    if (chosen.empty()) {
      return;
    }
    Attempt next = best;
    for (const std::size_t i : chosen) {
      if (next.pieces.halve(i, Pieces::Why::kBalance)) {
        next.partition.bin[i] = kNowhere;
        next.partition.bin.push_back(kNowhere);
      }
      best.pieces.keep(i);
    }
    if (next.pieces.halvings() == best.pieces.halvings()) {
      continue;
    }
    next.partition = improve(next.pieces.problem(), next.partition, limits.search);
    ++fruitless;
    if (better(next.partition, best.partition)) {
      best = std::move(next);
      fruitless = 0;
    }
  }
}

}  // namespace

Halved halve_hottest(const Problem& problem, const Halve& halve, const HalvingLimits& limits) {
  check(problem);
  const auto items = static_cast<std::int64_t>(problem.items.size());
  const auto bins = static_cast<std::int64_t>(problem.bins.size());
  Pieces pieces(problem, halve,
                {.max_items = limits.max_items > 0 ? limits.max_items : items + 8 * bins,
                 .most_left = 1.0 - limits.least_gain});
  pieces.halve_while([&](const Item& item) { return !fits_an_empty_bin(item, problem.bins); },
                     Pieces::Why::kRoom);
  Attempt best{.pieces = pieces, .partition = best_of(pieces.problem(), limits.search)};
  Attempt few = best;
  halve_few(few, limits);
  halve_many(best, limits);
  halve_few(best, limits);
  if (!better(best.partition, few.partition)) {
    best = std::move(few);
  }
  return {.items = best.pieces.problem().items,
          .partition = std::move(best.partition),
          .halvings = best.pieces.halvings()};
}

}  // namespace weft::planner
