/// The sum of the rule of parts (parts.h) where few parts have a term: the same additions as those
/// of sum_tree(), found from the terms alone.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

namespace weft {

/// Adds the terms of single parts up the tree: term i of `count` is for part part_of(i), and parts
/// ascend. Absent parts cost nothing, however many there are.
///
///   put(i, depth)   slot[depth] = term i
///   add(depth)      slot[depth] += slot[depth + 1]
///
/// Requires 1 <= count. The sum is then in slot 0; slots are at most tree_slots() of all parts.
/// Cost: O(count).
template <typename PartOf, typename Put, typename Add>
void sum_present(std::int64_t count, const PartOf& part_of, const Put& put, const Add& add) {
  // The parts of a node are those whose numbers begin with the same bits, so two of them join as
  // high in the tree as the highest bit is in which they differ. A slot waits for what joins it
  // from the right, which is higher up than what the slots behind it wait for.
  std::array<int, 64> joins;  // how high slot d joins what is in slot d + 1
  int depth = 0;
  put(0, 0);
  for (std::int64_t i = 1; i < count; ++i) {
    const auto differ = static_cast<std::uint64_t>(part_of(i - 1) ^ part_of(i));
    const int height = static_cast<int>(std::bit_width(differ));
    while (depth > 0 && joins[static_cast<std::size_t>(depth - 1)] < height) {
      add(--depth);
    }
    joins[static_cast<std::size_t>(depth)] = height;
    put(i, ++depth);
  }
  while (depth > 0) {
    add(--depth);
  }
}

}  // namespace weft
