#include "weft/base/parts.h"

#include <array>
#include <bit>
#include <cstddef>

#include "weft/base/error.h"

namespace weft {
namespace {

void collect_subtrees(Range node, Range run, std::vector<Range>& out) {
  if (node.end <= run.begin || run.end <= node.begin) {
    return;
  }
  if (run.begin <= node.begin && node.end <= run.end) {
    out.push_back(node);
    return;
  }
  // A node that only overlaps the run has at least two parts, so it can be split.
  const std::int64_t middle = tree_split(node.begin, node.end);
  collect_subtrees({node.begin, middle}, run, out);
  collect_subtrees({middle, node.end}, run, out);
}

}  // namespace

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
  if (!run.empty()) {
    collect_subtrees({0, total}, run, out);
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
