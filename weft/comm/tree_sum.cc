#include "weft/comm/tree_sum.h"

#include <algorithm>
#include <cstddef>
#include <utility>

namespace weft::comm {

TreeSum::TreeSum(Range node, std::vector<Range> terms) : node_(node), terms_(std::move(terms)) {
  slots_.resize(static_cast<std::size_t>(tree_slots(std::max<std::int64_t>(node.size(), 1))) + 1);
  additions_.reserve(terms_.size());
  set_present(std::vector<std::uint8_t>(terms_.size(), 1));
}

bool TreeSum::set_present(std::span<const std::uint8_t> present) {
  additions_.clear();
  slots_[0] = {};
  std::size_t next = 0;  // the walk meets the terms in order
  const auto leaf = [&](Range node, int depth) {
    if (next == terms_.size() || !(terms_[next] == node)) {
      return false;
    }
    // Below an absent node nothing matches, as the next candidate begins behind it.
    const bool is_present = present[next] != 0;
    if (is_present) {
      slots_[static_cast<std::size_t>(depth)] = {.term = static_cast<std::int64_t>(next)};
    }
    ++next;
    return is_present;
  };
  const auto add = [&](int depth) {
    const auto slot = static_cast<std::size_t>(depth);
    additions_.push_back({.sum = depth, .a = slots_[slot], .b = slots_[slot + 1]});
    slots_[slot] = {.term = -1, .sum = depth};
  };
  return sum_tree(node_, 0, leaf, add);
}

kernels::TermSum TreeSum::job(std::int64_t count, const Memory& memory) const {
  return {.additions = additions_,
          .only = additions_.empty() ? slots_[0] : kernels::SumOperand{},
          .terms = memory.rows,
          .scratch = memory.scratch,
          .stride = memory.stride,
          .out = memory.out,
          .count = count};
}

}  // namespace weft::comm
