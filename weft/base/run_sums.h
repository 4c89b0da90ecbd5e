/// RunSums: partial sums over a run of neighbouring parts (weft/base/parts.h), in the form in which
/// ranks merge them: one sum per maximal whole subtree of the run. With P = 8 parts the run [1, 4)
/// has the subtrees [1, 2) and [2, 4). Every subtree of the union of two neighbouring runs is a
/// subtree of one of them, or the sum of such subtrees; so merging is associative, ranks may merge
/// in any tree that keeps their order, and the sum over all parts is bit for bit that of the rule
/// of parts. Control messages and reports of a step are made of these (weft/train).
///
/// Notation    P parts, K values per part, S = most_subtrees(P).
/// Memory      S·K values and scratch, which grow to the largest run that was assigned or merged.
/// Wire        the run and S·K values: encoded_bytes(P, K), equal for every run. Bytes are of the
///             machine's own order. All ranks use equal P and K.
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
    pending_nodes_.reserve(2 * most);
    pending_sums_.reserve(2 * most * at(values));
  }

  /// Size of encode()'s bytes, equal for all runs.
  static std::int64_t encoded_bytes(std::int64_t parts, std::int64_t values) {
    return static_cast<std::int64_t>(sizeof(Range)) +
           most_subtrees(parts) * values * static_cast<std::int64_t>(sizeof(T));
  }

  [[nodiscard]] Range run() const { return run_; }

  /// Makes this the sums of a run whose parts have `terms` [run.size()][values].
  void assign(Range run, std::span<const T> terms) {
    WEFT_CHECK(terms.size() == at(run.size() * values_), "{} terms for {} parts of {} values",
               terms.size(), run.size(), values_);
    run_ = {run.begin, run.begin};
    nodes_.clear();
    sums_.clear();
    begin_merge();
    for (std::int64_t p = run.begin; p < run.end; ++p) {
      take({p, p + 1}, terms.subspan(at((p - run.begin) * values_), at(values_)));
    }
    end_merge(run);
  }

  /// Takes in the sums of the run after this one. The empty run may stand on either side.
  void append(const RunSums& right) {
    if (right.run_.empty()) {
      return;
    }
    const Range run = joined(right.run_);
    begin_merge();
    for (std::size_t i = 0; i < right.nodes_.size(); ++i) {
      take(right.nodes_[i], std::span(right.sums_).subspan(i * at(values_), at(values_)));
    }
    end_merge(run);
  }

  /// The sums over all parts, [values]. REQUIRES: the run has all parts.
  [[nodiscard]] std::span<const T> total() const {
    WEFT_CHECK(run_ == (Range{0, parts_}), "parts [{}, {}) of {}", run_.begin, run_.end, parts_);
    return sums_;
  }

  /// Writes the run to `out` [encoded_bytes()].
  void encode(std::span<std::byte> out) const {
    std::memset(out.data(), 0, out.size());
    std::memcpy(out.data(), &run_, sizeof(run_));
    std::memcpy(out.data() + sizeof(run_), sums_.data(), sums_.size() * sizeof(T));
  }

  /// Makes this the run that encode() wrote. Throws Error(kComm) where the
  /// run is not in [0, parts).
  void decode(std::span<const std::byte> in) {
    std::memcpy(&run_, in.data(), sizeof(run_));
    if (run_.begin < 0 || run_.end < run_.begin || run_.end > parts_) {
      fail(ErrorCode::kComm, "a message has sums of parts [{}, {}) of {}", run_.begin, run_.end,
           parts_);
    }
    nodes_.clear();
    list_nodes({0, parts_});
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

  void begin_merge() {
    pending_nodes_.assign(nodes_.begin(), nodes_.end());
    pending_sums_.assign(sums_.begin(), sums_.end());
  }

  void take(Range node, std::span<const T> sums) {
    pending_nodes_.push_back(node);
    pending_sums_.insert(pending_sums_.end(), sums.begin(), sums.end());
  }

  void end_merge(Range run) {
    run_ = run;
    nodes_.clear();
    sums_.clear();
    std::size_t next = 0;
    if (!run.empty()) {
      merge({0, parts_}, next);
    }
  }

  /// Appends the maximal subtrees of the run inside `node`. Returns whether `node` lies in the run
  /// as a whole: its sum is then the last.
  bool merge(Range node, std::size_t& next) {
    if (node.end <= run_.begin || run_.end <= node.begin) {
      return false;
    }
    if (next < pending_nodes_.size() && pending_nodes_[next] == node) {
      const auto sums = std::span(pending_sums_).subspan(next * at(values_), at(values_));
      nodes_.push_back(node);
      sums_.insert(sums_.end(), sums.begin(), sums.end());
      ++next;
      return true;
    }
    const std::int64_t middle = tree_split(node.begin, node.end);
    const bool left = merge({node.begin, middle}, next);
    const bool right = merge({middle, node.end}, next);
    if (!left || !right) {
      return false;
    }
    nodes_.pop_back();
    nodes_.back() = node;
    T* const sum = sums_.data() + sums_.size() - 2 * at(values_);
    for (std::size_t i = 0; i < at(values_); ++i) {
      Add{}(sum[i], sum[at(values_) + i]);
    }
    sums_.resize(sums_.size() - at(values_));
    return true;
  }

  void list_nodes(Range node) {
    if (node.end <= run_.begin || run_.end <= node.begin) {
      return;
    }
    if (run_.begin <= node.begin && node.end <= run_.end) {
      nodes_.push_back(node);
      return;
    }
    const std::int64_t middle = tree_split(node.begin, node.end);
    list_nodes({node.begin, middle});
    list_nodes({middle, node.end});
  }

  std::int64_t parts_;
  std::int64_t values_;
  Range run_;
  std::vector<Range> nodes_;          // the run's maximal subtrees, in order
  std::vector<T> sums_;               // [nodes][values]
  std::vector<Range> pending_nodes_;  // subtrees to merge, in order
  std::vector<T> pending_sums_;
};

}  // namespace weft
