/// The rule of parts: the one order in which sums over samples are added.
///
/// A global batch of n samples is cut by position into P contiguous parts, part p being samples
/// [⌊pn/P⌋, ⌊(p+1)n/P⌋). Position r of W ranks owns parts [⌊rP/W⌋, ⌊(r+1)P/W⌋). Parts are added
/// up one binary tree: a node over k > 1 parts splits after the largest power of two below k.
/// A part without a term is skipped, never added as zero. Whoever adds for others sends one
/// partial sum per maximal whole subtree of its run of parts. So the bits of a sum depend on P and
/// on the data, not on ranks, threads or timing. docs/numerics.md has the argument.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

/// A half-open range of indices: samples, parts, rows, columns.
struct Range {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  [[nodiscard]] std::int64_t size() const { return end - begin; }

  [[nodiscard]] bool empty() const { return begin == end; }

  friend bool operator==(const Range&, const Range&) = default;
};

/// Rows begin, begin + step, ... below end: a range where step is 1.
struct RowSet {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t step = 1;

  constexpr RowSet() = default;

  constexpr RowSet(std::int64_t first, std::int64_t last, std::int64_t stride = 1)
      : begin(first), end(last), step(stride) {}

  constexpr RowSet(const Range& range) : begin(range.begin), end(range.end) {}

  [[nodiscard]] std::int64_t size() const { return begin < end ? (end - begin - 1) / step + 1 : 0; }

  /// The i-th of them, and which one a row of them is.
  [[nodiscard]] std::int64_t row(std::int64_t i) const { return begin + i * step; }

  [[nodiscard]] std::int64_t index(std::int64_t row) const { return (row - begin) / step; }

  [[nodiscard]] bool contains(std::int64_t row) const {
    return begin <= row && row < end && (row - begin) % step == 0;
  }

  friend bool operator==(const RowSet&, const RowSet&) = default;
};

/// Piece `index` of `count` of [0, n): [⌊index·n/count⌋, ⌊(index+1)·n/count⌋).
inline Range piece(std::int64_t n, std::int64_t count, std::int64_t index) {
  return {index * n / count, (index + 1) * n / count};
}

/// Samples of part p of P in a global batch of n.
inline Range part_samples(std::int64_t n, std::int64_t parts, std::int64_t part) {
  return piece(n, parts, part);
}

/// Parts owned by position r of W. Requires W <= P.
inline Range rank_parts(std::int64_t parts, std::int64_t ranks, std::int64_t rank) {
  return piece(parts, ranks, rank);
}

/// Samples owned by position r of W: those of its parts.
inline Range rank_samples(std::int64_t n,
                          std::int64_t parts,
                          std::int64_t ranks,
                          std::int64_t rank) {
  const Range own = rank_parts(parts, ranks, rank);
  return {part_samples(n, parts, own.begin).begin, own.empty()
                                                       ? part_samples(n, parts, own.begin).begin
                                                       : part_samples(n, parts, own.end - 1).end};
}

/// Where a tree node over [begin, end) splits: after the largest power of two below its size.
/// Requires end - begin >= 2.
std::int64_t tree_split(std::int64_t begin, std::int64_t end);

/// The maximal whole subtrees of the tree over [0, total) that lie inside `run`, in order.
std::vector<Range> maximal_subtrees(std::int64_t total, Range run);

/// The same, appended to `out`.
void maximal_subtrees(std::int64_t total, Range run, std::vector<Range>& out);

/// Whether these parts are those of one node of the tree over [0, total).
bool is_subtree(std::int64_t total, Range parts);

/// Walks the tree over [0, total), bottom up. `T` is anything; absent terms are skipped.
///
///   leaf(node) -> bool   true where a term exists for exactly this node (a part, or a whole
///                        subtree that somebody has already summed); then the walk does not go
///                        deeper. `depth` says which scratch slot receives it.
///   add(depth)           slot[depth] += slot[depth + 1]
///
/// Returns whether any term existed; the sum is then in slot 0. Cost: one add per joined pair.
template <typename Leaf, typename Add>
bool sum_tree(Range node, int depth, const Leaf& leaf, const Add& add) {
  if (leaf(node, depth)) {
    return true;
  }
  if (node.size() <= 1) {
    return false;
  }
  const std::int64_t middle = tree_split(node.begin, node.end);
  const bool left = sum_tree(Range{node.begin, middle}, depth, leaf, add);
  const bool right = sum_tree(Range{middle, node.end}, left ? depth + 1 : depth, leaf, add);
  if (left && right) {
    add(depth);
  }
  return left || right;
}

/// Number of scratch slots sum_tree needs for `total` leaves: tree depth + 1.
int tree_slots(std::int64_t total);

/// Sums doubles up the tree, terms[p] being part p; every part is present. 0 where there is none.
double sum_parts(const std::vector<double>& terms);

}  // namespace weft
