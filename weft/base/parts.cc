#include "weft/base/parts.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "weft/base/error.h"

namespace weft {

std::int64_t tree_split(std::int64_t begin, std::int64_t end) {
  WEFT_CHECK(end - begin >= 2, "[{}, {}) cannot be split", begin, end);
  return begin +
         static_cast<std::int64_t>(std::bit_floor(static_cast<std::uint64_t>(end - begin - 1)));
}

std::vector<Range> maximal_subtrees(std::int64_t total, Range run) {
  std::vector<Range> out;
  maximal_subtrees(total, run, out);
  return out;
}

void maximal_subtrees(std::int64_t total, Range run, std::vector<Range>& out) {
  WEFT_CHECK(0 <= run.begin && run.begin <= run.end && run.end <= total, "parts [{}, {}) of {}",
             run.begin, run.end, total);
  // Each is the largest node that begins where the one before it ends, as is_subtree() has them.
  for (std::int64_t begin = run.begin; begin < run.end;) {
    Range node{begin, run.end};
    if (run.end != total || !is_subtree(total, node)) {
      const auto fits = std::bit_floor(static_cast<std::uint64_t>(node.size()));
      const auto from = static_cast<std::uint64_t>(begin);
      const std::uint64_t size = begin == 0 ? fits : std::min(fits, from & (~from + 1));
      node.end = begin + static_cast<std::int64_t>(size);
    }
    out.push_back(node);
    begin = node.end;
  }
}

/// As trees split after a power of two, a node is a whole power of two of parts at a multiple of
/// it, or it ends with the last part and begins where the largest powers of two of the total end.
bool is_subtree(std::int64_t total, Range parts) {
  const auto begin = static_cast<std::uint64_t>(parts.begin);
  const auto size = static_cast<std::uint64_t>(parts.size());
  if (parts.begin < 0 || parts.begin >= parts.end || parts.end > total) {
    return parts == Range{0, total};
  }
  if (std::has_single_bit(size) && begin % size == 0) {
    return true;
  }
  return parts.end == total && (begin == 0 || size < (begin & (~begin + 1)));
}

int tree_slots(std::int64_t total) {
  // The depth is ⌈log2 total⌉, and bit_width(total - 1) is just that.
  return total <= 1 ? 1
                    : 1 + static_cast<int>(std::bit_width(static_cast<std::uint64_t>(total - 1)));
}

double sum_parts(const std::vector<double>& terms) {
  if (terms.empty()) {
    return 0.0;
  }
  std::array<double, 64> slots{};
  sum_tree(
      Range{0, static_cast<std::int64_t>(terms.size())}, 0,
      [&](Range node, int depth) {
        if (node.size() != 1) {
          return false;
        }
        slots[static_cast<std::size_t>(depth)] = terms[static_cast<std::size_t>(node.begin)];
        return true;
      },
      [&](int depth) {
        const auto slot = static_cast<std::size_t>(depth);
        slots[slot] += slots[slot + 1];
      });
  return slots[0];
}

}  // namespace weft
