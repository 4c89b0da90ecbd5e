/// A partition in the making, for the algorithms of partition.h. Private to planner/.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/planner/partition.h"

namespace weft::planner {

/// Costs as integers, so that sums do not depend on their order.
using Ticks = std::int64_t;

/// Throws Error(kUsage) for what partition.h calls an error.
void check(const Problem& problem);

/// Items and bins with integer costs. Items are renumbered in the one order that everything here
/// follows: decreasing cost, decreasing bytes, range, group, position. Items of a group too small
/// to matter have none.
class Instance {
 public:
  explicit Instance(const Problem& problem);

  [[nodiscard]] std::int32_t items() const { return static_cast<std::int32_t>(items_.size()); }

  [[nodiscard]] std::int32_t bins() const { return static_cast<std::int32_t>(base_.size()); }

  [[nodiscard]] std::int32_t groups() const { return groups_; }

  [[nodiscard]] Ticks cost(std::int32_t item) const { return at(item).cost; }

  [[nodiscard]] const Bytes& bytes(std::int32_t item) const { return at(item).bytes; }

  /// Never empty.
  [[nodiscard]] const Range& range(std::int32_t item) const { return at(item).range; }

  /// In [0, groups()), or kNoGroup.
  [[nodiscard]] std::int32_t group(std::int32_t item) const { return at(item).group; }

  /// In the problem.
  [[nodiscard]] std::size_t position(std::int32_t item) const { return at(item).position; }

  [[nodiscard]] Ticks base(std::int32_t bin) const { return base_[static_cast<std::size_t>(bin)]; }

  [[nodiscard]] const Bin& bin(std::int32_t bin) const {
    return problem_->bins[static_cast<std::size_t>(bin)];
  }

  /// Returns the cost in the problem's unit that `ticks` stand for.
  [[nodiscard]] double cost_of(Ticks ticks) const;

  /// Items by their allowed bins: fewest bins first, then lowest; in each the order of items.
  struct RangeItems {
    Range range;
    std::vector<std::int32_t> items;
  };

  /// Returns all items in RangeItems, one for each range that some item has. O(n log n).
  [[nodiscard]] std::vector<RangeItems> by_range() const;

 private:
  struct Entry {
    Ticks cost = 0;
    Bytes bytes{};
    Range range;
    std::int64_t label = kNoGroup;
    std::int32_t group = static_cast<std::int32_t>(kNoGroup);
    std::size_t position = 0;
  };

  [[nodiscard]] const Entry& at(std::int32_t item) const {
    return items_[static_cast<std::size_t>(item)];
  }

  void number_groups();

  const Problem* problem_;
  int shift_ = 0;  ///< ticks = cost * 2^shift
  std::vector<Entry> items_;
  std::vector<Ticks> base_;
  std::int32_t groups_ = 0;
};

inline constexpr std::int32_t kNone = -1;  ///< no item, no bin

/// Which item is where. Every bin's items are kept in order.
class State {
 public:
  explicit State(const Instance& instance);

  [[nodiscard]] std::int32_t bin_of(std::int32_t item) const { return where_[at(item)]; }

  [[nodiscard]] Ticks load(std::int32_t bin) const { return load_[at(bin)]; }

  [[nodiscard]] const std::vector<std::int32_t>& held(std::int32_t bin) const {
    return held_[at(bin)];
  }

  /// Whether the item may go there: range, group and capacity, with `without` taken away (or -1).
  [[nodiscard]] bool fits(std::int32_t item, std::int32_t bin, std::int32_t without = -1) const;

  /// Places an item that is nowhere in a bin, and takes an item out of the bin that it is in.
  /// O(items of the bin). REQUIRES: for put(), that the item fits; this is not checked.
  void put(std::int32_t item, std::int32_t bin);
  void take(std::int32_t item);

  /// The least costly bin it fits in, other than `except`; -1: none.
  [[nodiscard]] std::int32_t coldest(std::int32_t item, std::int32_t except = -1) const;

  /// Places every item that is nowhere, costly ones first: where it is least costly, else where one
  /// other item can leave for another bin.
  void place_rest();

  /// Returns the state as a Partition. Items that are nowhere, and bins that are overfull before
  /// any item, become misfits.
  [[nodiscard]] Partition result() const;

 private:
  /// Who looks for a bin, which is not wanted, and how many more may be in vain.
  struct Asked {
    std::int32_t item;
    std::int32_t except;
    int left;
  };

  [[nodiscard]] bool group_is_in(std::int32_t group, std::int32_t bin) const;
  [[nodiscard]] bool is_colder(std::int32_t bin, std::int32_t than) const;
  void start_tournament();
  void replay(std::int32_t bin);
  void find_coldest(std::size_t node, Range bins, Asked& asked, std::int32_t& best) const;
  bool make_room(std::int32_t item);
  [[nodiscard]] Misfit misfit(std::int32_t item) const;

  const Instance* instance_;
  std::vector<std::int32_t> where_;
  std::vector<Ticks> load_;
  std::vector<Bytes> bytes_;
  std::vector<std::vector<std::int32_t>> held_;
  std::vector<std::uint64_t> occupied_;  ///< groups x bins, a bit each
  /// While many items are placed: a tree over the bins, in each node the least costly one below.
  std::vector<std::int32_t> winners_;
};

/// The items' places, which may break constraints. What does is left out, costly items first.
State state_of(const Instance& instance, std::span<const std::int64_t> bin);

/// Those of greedy() and differencing().
State greedy_state(const Instance& instance);
State differencing_state(const Instance& instance);

/// The bound of lower_bound().
Ticks lower_bound_ticks(const Instance& instance);

}  // namespace weft::planner
