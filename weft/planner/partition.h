/// Items onto bins, so that the costliest bin costs least: shards onto ranks, without knowing what
/// either is. A rank's time is the sum over its shards, a step's is the maximum over ranks, so an
/// item has one cost and bins are compared by their sums.
///
/// All functions are pure and single-threaded. Inside, costs are integers in steps of about 2^-45
/// of the largest, so sums are exact; ties go by cost, bytes, allowed bins, group and position.
/// Permuting the items permutes the answer, up to items that differ in nothing but tag and
/// position. No result depends on addresses, hashes or the C library's mathematics.
///
/// What does not fit is left out and named in `misfits`; what is placed keeps every constraint.
///
/// n items, k bins. Errors: kUsage for a cost that is negative or not finite, bytes that are
/// negative or more than 2^62 in all, groups below -1, allowed bins that are not there, or no bins.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/parts.h"

namespace weft::planner {

/// Kinds of memory with a capacity of their own: 0 the device's, 1 the host's beside it.
inline constexpr std::size_t kTiers = 2;
using Bytes = std::array<std::int64_t, kTiers>;

/// No item or no bin; no group; and a capacity that limits nothing.
inline constexpr std::int64_t kNowhere = -1;
inline constexpr std::int64_t kNoGroup = -1;
inline constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// What goes to one bin as a whole.
struct Item {
  double cost = 0.0;
  Bytes bytes{};
  Range bins{};                   ///< where it may go: a host's ranks, or one; empty: anywhere
  std::int64_t group = kNoGroup;  ///< items of one group go to different bins
  std::int64_t tag = 0;           ///< the caller's; not read here

  friend bool operator==(const Item&, const Item&) = default;
};

/// What a bin holds before any item, and how much it can hold with them.
struct Bin {
  double cost = 0.0;
  Bytes bytes{};
  Bytes capacity{kUnlimited, kUnlimited};

  friend bool operator==(const Bin&, const Bin&) = default;
};

/// The items to place and the bins to place them in. There must be a bin; items may be none.
struct Problem {
  std::vector<Item> items;
  std::vector<Bin> bins;
};

/// Something that found no place.
struct Misfit {
  std::int64_t item = kNowhere;  ///< kNowhere: a bin is full before any item
  std::int64_t bin = kNowhere;   ///< where the least is missing; kNowhere: its group is everywhere
  std::int64_t tier = 0;         ///< of which memory
  std::int64_t missing = 0;      ///< bytes, in the bins as the others left them

  friend bool operator==(const Misfit&, const Misfit&) = default;
};

/// An answer to a Problem: where each item went, and the sums of what the bins then hold.
struct Partition {
  std::vector<std::int64_t> bin;  ///< of each item; kNowhere for a misfit
  std::vector<double> cost;       ///< of each bin, what it held before included
  std::vector<Bytes> bytes;       ///< of each bin, likewise
  std::vector<Misfit> misfits;    ///< by item

  [[nodiscard]] bool feasible() const { return misfits.empty(); }

  /// Returns the largest, or the mean, cost of the bins; 0 where there are none.
  [[nodiscard]] double max_cost() const;
  [[nodiscard]] double mean_cost() const;

  /// Max over mean of the bins' costs, or of their bytes; 1 where all are 0.
  [[nodiscard]] double imbalance() const;
  [[nodiscard]] double bytes_imbalance(std::size_t tier) const;

  friend bool operator==(const Partition&, const Partition&) = default;
};

/// The sums of a given assignment (kNowhere or a bin, for each item). Items that break a constraint
/// where they are put, counting costly ones first, become misfits. O(n log n + k).
Partition evaluate(const Problem& problem, std::span<const std::int64_t> bin);

/// LPT, longest processing time first (Graham, 1969): by decreasing cost, each item to the least
/// costly bin it fits in (ties: lower bin). At most 4/3 - 1/(3k) times the optimum where nothing is
/// constrained. An item that fits nowhere may move another out of its way, once. O(n (k + log n)).
Partition greedy(const Problem& problem);

/// The same by other numbers than the cost (bytes, width, lookups): they order and are balanced.
/// One finite key >= 0 per item. What bins hold before counts for nothing.
Partition greedy_by(const Problem& problem, std::span<const double> keys);

/// Every item, in a seeded order, to a random bin among those it fits in. For comparison.
Partition at_random(const Problem& problem, std::uint64_t seed);

/// Largest differencing for k bins (Karmarkar and Karp, 1982). Partial solutions of up to k sums;
/// the two of largest spread are joined, the largest sums of one with the smallest of the other. A
/// group starts as one partial solution, so its items stay apart; bins that hold something start
/// as another. Capacity is repaired afterwards: what does not fit goes where `greedy` would put it.
/// Items that may go to few bins are spread before those that may go to more, range by range.
/// Sums that are zero are not stored: O(n (log n + k)) time at worst, O(n + k) memory.
Partition differencing(const Problem& problem);

/// When searching stops.
struct SearchLimits {
  std::int64_t max_steps = 0;  ///< 0: 4 (n + k)
  double good_enough = 1e-4;   ///< above lower_bound, relative
};

/// Moves and swaps out of the costliest bin (ties: higher bin) that lower it, into the least costly
/// bin with which that is possible, of 1,024; the step that leaves the two evenest first. Ends
/// where none is left, or at a limit. Never worse than `start`, whose misfits are given a place
/// first.
Partition improve(const Problem& problem, const Partition& start, const SearchLimits& limits = {});

/// The best of greedy and differencing, each improved; where those leave something out also of both
/// done for memory first (the share of it in place of the cost) and improved from there. Best is:
/// fewest misfits, fewest bytes missing, lowest maximum cost, lowest maximum bytes (tier 0, then
/// 1), then in this order.
Partition best_of(const Problem& problem, const SearchLimits& limits = {});

/// No partition without misfits costs less: the largest of the item's costs, the level to which all
/// items fill all bins, that of each range's own items, the m + 1 smallest of the mk + 1 largest
/// items for every m, and the least size for which Martello and Toth's bound (L2) on bin packing
/// allows k bins. O((n + k) log (n + k)) for each of about 40 sizes.
double lower_bound(const Problem& problem);

/// The two halves of an item, or nothing where it cannot be halved. Both may cost more than half.
using Halve = std::function<std::optional<std::array<Item, 2>>(const Item&)>;

/// The limits of halve_hottest(). An item that fits into no empty bin is halved whatever
/// `least_gain` says.
struct HalvingLimits {
  std::int64_t rounds = 64;    ///< partitions tried, each time that one of two ways is gone
  std::int64_t max_items = 0;  ///< 0: n + 8 k
  double least_gain = 0.03;    ///< halves that cost more than 1 - this of the whole are not made
  double good_enough = 0.005;  ///< of the costliest bin, above the mean
  SearchLimits search = {};    ///< of each partition
};

/// The answer of halve_hottest(): the items after halving and where they went. `halvings` counts
/// the items that were replaced by two.
struct Halved {
  std::vector<Item> items;  ///< in place of those given; one that was halved is replaced in place
  Partition partition;      ///< of these items
  std::int64_t halvings = 0;
};

/// Halves what stands in the way of balance, first of all whatever fits into no empty bin. Then in
/// two ways, the second both from there and after the first; the lowest maximum is returned, Many:
/// round by round whatever costs more than a threshold that begins at the costliest item and falls
/// by 0.84, every round partitioned by `best_of`. Few: the costliest item of each of the k / 64
/// costliest bins, the rest staying where it is. Either ends with six rounds in a row that lower no
/// maximum. Halves of an item without a group get one of their own; a group never has more items
/// than bins it may go to. Deterministic where `halve` is a function of its argument.
Halved halve_hottest(const Problem& problem, const Halve& halve, const HalvingLimits& limits = {});

}  // namespace weft::planner
