/// SubtreeStack: where sums over parts are kept while the parts of a run are summed some at a time,
/// from the first to the last, with the bits of the tree over parts (weft/base/parts.h).
///
/// Each advance() covers further parts with whole subtrees; the caller sums each of them. A subtree
/// whose sibling comes later waits; once both are there they are joined, as carries are in a binary
/// counter, so that few sums wait at once. In the end there is one sum for each root, the maximal
/// whole subtrees of the run. However often advance() is called, the same numbers are added in the
/// same tree.
///
/// Places      a subtree that begins its root is summed where the root's sum is to be; another one
///             in a slot. A join adds the later sum to the earlier one, in its place.
/// Cost        advance() is O(log parts) for each subtree. Only the constructor allocates.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/micro_batches.h"
#include "weft/base/parts.h"

namespace weft {

class SubtreeStack {
 public:
  /// In the root's own place.
  static constexpr std::int64_t kOfRoot = -1;

  /// A subtree and where its sum is.
  struct Subtree {
    Range node;
    std::int64_t root = 0;  ///< number of its root
    std::int64_t slot = kOfRoot;
  };

  /// earlier += later. Either may be absent, where its parts have no samples.
  struct Join {
    Subtree earlier;
    Subtree later;
  };

  /// For the parts `run` of `total`.
  SubtreeStack(std::int64_t total, const Range& run);

  /// Begins again with the first part.
  void restart();

  /// Covers the parts up to `end`. Returns the subtrees that are to be summed now, in order; none
  /// where all of these parts are covered. Valid until the next call. REQUIRES: end is in the run.
  std::span<const Subtree> advance(std::int64_t end);

  /// The joins that are possible once those are summed: to be done in order, before the next
  /// advance().
  [[nodiscard]] std::span<const Join> joins() const { return joins_; }

  /// The part after the last that is covered.
  [[nodiscard]] std::int64_t end() const { return end_; }

 private:
  void place(const Range& node);
  void join();

  std::int64_t total_;
  Range run_;
  std::vector<Range> roots_;
  std::int64_t end_;
  std::size_t root_ = 0;  // of the next subtree
  std::vector<Range> nodes_;
  std::vector<Subtree> fresh_;
  std::vector<Subtree> waiting_;
  std::vector<Join> joins_;
};

/// The memory of sums along the cuts of a run: they may be taken cut by cut from the first, and the
/// rest at once, after any of them.
struct SubtreeNeeds {
  std::int64_t slots = 0;    ///< sums outside of the roots' places
  std::int64_t at_once = 0;  ///< subtrees of one advance()
};

/// The needs of a rank with the parts `run` of `total`.
SubtreeNeeds subtree_needs(std::int64_t total, const Range& run, const MicroBatches& cuts);

}  // namespace weft
