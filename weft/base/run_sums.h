/// RunSums: partial sums over a run of neighbouring parts (weft/base/parts.h), in the form in which
/// ranks merge them: one sum per maximal whole subtree of the run. With P = 8 parts the run [1, 4)
/// has the subtrees [1, 2) and [2, 4). Every subtree of the union of two neighbouring runs is a
/// subtree of one of them, or the sum of such subtrees; so merging is associative, ranks may merge
/// in any tree that keeps their order, and the sum over all parts is bit for bit that of the rule
/// of parts. Control messages and reports of a step are made of these (weft/train).
///
/// Notation    P parts, K values per part, S subtrees: most_subtrees(P), or fewer where it is known
///             which runs a message can have.
/// Memory      most_subtrees(P)·K values.
/// Cost        a subtree that is taken in costs O(log P), so merging many small runs in order is
///             O(log P) for each.
/// Wire        the run and S·K values: encoded_bytes(S, K), equal for every run. Bytes are of the
///             machine's own order. All ranks use equal P, S and K.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"

namespace weft {

/// Upper bound of the number of maximal whole subtrees of any run in [0, parts).
inline std::int64_t most_subtrees(std::int64_t parts) {
  return std::max<std::int64_t>(1, 2 * (tree_slots(parts) - 1));
}

/// The most maximal whole subtrees that a rank's parts have, of `ranks` with equal shares of
/// `parts`. O(ranks log parts).
inline std::int64_t most_subtrees_of_ranks(std::int64_t parts, std::int64_t ranks) {
  std::vector<Range> nodes;
  std::size_t most = 1;
  for (std::int64_t r = 0; r < ranks; ++r) {
    nodes.clear();
    maximal_subtrees(parts, rank_parts(parts, ranks, r), nodes);
    most = std::max(most, nodes.size());
  }
  return static_cast<std::int64_t>(most);
}

/// `T` is trivially copyable and has a default value. Add is called as add(T& sum, const T& later),
/// where the parts of `later` follow those of `sum`.
template <typename T, typename Add>
class RunSums {
 public:
  static_assert(std::is_trivially_copyable_v<T>);

  /// The empty run of `parts` parts with `values` values each.
  RunSums(std::int64_t parts, std::int64_t values) : parts_(parts), values_(values) {
    const auto most = at(most_subtrees(parts) + 1);  // one more while two are joined
    nodes_.reserve(most);
    sums_.reserve(most * at(values));
  }

  /// Size of encode()'s bytes for runs of at most so many maximal subtrees.
  static std::int64_t encoded_bytes(std::int64_t subtrees, std::int64_t values) {
    return static_cast<std::int64_t>(sizeof(Range)) +
           subtrees * values * static_cast<std::int64_t>(sizeof(T));
  }

  [[nodiscard]] Range run() const { return run_; }

  /// Makes this the sums of a run whose parts have `terms` [run.size()][values].
  void assign(Range run, std::span<const T> terms) {
    WEFT_CHECK(terms.size() == at(run.size() * values_), "{} terms for {} parts of {} values",
               terms.size(), run.size(), values_);
    run_ = run;
    nodes_.clear();
    sums_.clear();
    for (std::int64_t p = run.begin; p < run.end; ++p) {
      take({p, p + 1}, terms.subspan(at((p - run.begin) * values_), at(values_)));
    }
  }

  /// Takes in the sums of the run after this one. The empty run may stand on either side.
  void append(const RunSums& right) {
    if (right.run_.empty()) {
      return;
    }
    run_ = joined(right.run_);
    for (std::size_t i = 0; i < right.nodes_.size(); ++i) {
      take(right.nodes_[i], std::span(right.sums_).subspan(i * at(values_), at(values_)));
    }
  }

  /// The sums over all parts, [values]. REQUIRES: the run has all parts.
  [[nodiscard]] std::span<const T> total() const {
    WEFT_CHECK(run_ == (Range{0, parts_}), "parts [{}, {}) of {}", run_.begin, run_.end, parts_);
    return sums_;
  }

  /// Writes the run to `out` [encoded_bytes()], whose subtrees are at least those of the run.
  void encode(std::span<std::byte> out) const {
    WEFT_CHECK(at(encoded_bytes(std::ssize(nodes_), values_)) <= out.size(),
               "{} subtrees do not fit in a message of {} bytes", nodes_.size(), out.size());
    std::memset(out.data(), 0, out.size());
    std::memcpy(out.data(), &run_, sizeof(run_));
    std::memcpy(out.data() + sizeof(run_), sums_.data(), sums_.size() * sizeof(T));
  }

  /// Makes this the run that encode() wrote. Throws Error(kComm) where the run is not in
  /// [0, parts), or its sums are longer than `in`.
  void decode(std::span<const std::byte> in) {
    std::memcpy(&run_, in.data(), sizeof(run_));
    if (run_.begin < 0 || run_.end < run_.begin || run_.end > parts_) {
      fail(ErrorCode::kComm, "a message has sums of parts [{}, {}) of {}", run_.begin, run_.end,
           parts_);
    }
    nodes_.clear();
    maximal_subtrees(parts_, run_, nodes_);
    if (at(encoded_bytes(std::ssize(nodes_), values_)) > in.size()) {
      fail(ErrorCode::kComm, "a message of {} bytes has sums of parts [{}, {}) of {}", in.size(),
           run_.begin, run_.end, parts_);
    }
    sums_.resize(nodes_.size() * at(values_));
    std::memcpy(sums_.data(), in.data() + sizeof(run_), sums_.size() * sizeof(T));
  }

 private:
  [[nodiscard]] Range joined(Range right) const {
    if (run_.empty()) {
      return right;
    }
    if (run_.end != right.begin) {
      fail(ErrorCode::kComm, "a message has sums of parts [{}, {}) after those of [{}, {})",
           right.begin, right.end, run_.begin, run_.end);
    }
    return {run_.begin, right.end};
  }

  /// Adds the next subtree, and joins it with those before it as far as the tree has them as one.
  void take(Range node, std::span<const T> sums) {
    nodes_.push_back(node);
    sums_.insert(sums_.end(), sums.begin(), sums.end());
    while (nodes_.size() > 1 && are_siblings(nodes_[nodes_.size() - 2], nodes_.back())) {
      nodes_[nodes_.size() - 2].end = nodes_.back().end;
      nodes_.pop_back();
      T* const sum = sums_.data() + sums_.size() - 2 * at(values_);
      for (std::size_t i = 0; i < at(values_); ++i) {
        Add{}(sum[i], sum[at(values_) + i]);
      }
      sums_.resize(sums_.size() - at(values_));
    }
  }

  /// Returns whether two neighbouring subtrees are the halves of one.
  [[nodiscard]] bool are_siblings(Range left, Range right) const {
    const Range both{left.begin, right.end};
    return tree_split(both.begin, both.end) == left.end && is_subtree(parts_, both);
  }

  std::int64_t parts_;
  std::int64_t values_;
  Range run_;
  std::vector<Range> nodes_;  // the run's maximal subtrees, in order
  std::vector<T> sums_;       // [nodes][values]
};

}  // namespace weft
