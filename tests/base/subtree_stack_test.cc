#include "weft/base/subtree_stack.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"
#include "weft/base/hash.h"

namespace weft {
namespace {

/// A sum whose bits depend on the order: of numbers that float rounds.
using Value = std::optional<float>;

Value add(const Value& a, const Value& b) {
  return a && b ? Value(*a + *b) : (a ? a : b);
}

Value part_value(std::int64_t part, bool has_gaps) {
  if (has_gaps && part % 5 == 2) {
    return std::nullopt;
  }
  const auto word = static_cast<double>(mix64(static_cast<std::uint64_t>(part) + 77) >> 20);
  return static_cast<float>(std::ldexp(word, -44 + static_cast<int>(part % 7)));
}

Value node_value(Range node, bool has_gaps) {
  if (node.size() == 1) {
    return part_value(node.begin, has_gaps);
  }
  const std::int64_t middle = tree_split(node.begin, node.end);
  return add(node_value({node.begin, middle}, has_gaps), node_value({middle, node.end}, has_gaps));
}

/// Memory as a caller has it.
struct Places {
  std::vector<Value> roots, slots;

  Value& place(const SubtreeStack::Subtree& of) {
    return of.slot == SubtreeStack::kOfRoot ? roots[at(of.root)] : slots[at(of.slot)];
  }

  void advance(SubtreeStack& stack, std::int64_t end, bool has_gaps) {
    for (const SubtreeStack::Subtree& one : stack.advance(end)) {
      place(one) = node_value(one.node, has_gaps);
    }
    for (const SubtreeStack::Join& join : stack.joins()) {
      place(join.earlier) = add(place(join.earlier), place(join.later));
    }
  }
};

TEST(SubtreeStack, HasTheSumsOfTheTreeHoweverPartsCome) {
  for (std::int64_t total = 1; total <= 33; ++total) {
    for (std::int64_t ranks = 1; ranks <= std::min<std::int64_t>(total, 5); ++ranks) {
      for (std::int64_t rank = 0; rank < ranks; ++rank) {
        const Range run = rank_parts(total, ranks, rank);
        const std::vector<Range> roots = maximal_subtrees(total, run);
        SubtreeStack stack(total, run);
        for (std::uint64_t draw = 0; draw < 20; ++draw) {
          stack.restart();
          Places sums{std::vector<Value>(roots.size()), std::vector<Value>(64)};
          std::uint64_t state = draw;
          while (stack.end() < run.end) {
            state = mix64(state + 1);
            const auto most = static_cast<std::uint64_t>(run.end - stack.end());
            sums.advance(stack, stack.end() + static_cast<std::int64_t>(state % (most + 1)),
                         draw % 2 == 1);
          }
          for (std::size_t r = 0; r < roots.size(); ++r) {
            EXPECT_EQ(sums.roots[r], node_value(roots[r], draw % 2 == 1))
                << total << " parts, rank " << rank << " of " << ranks;
          }
        }
      }
    }
  }
}

TEST(SubtreeStack, SumsInOrderOfPartsWouldDiffer) {
  int different = 0;
  for (std::int64_t total = 4; total <= 33; ++total) {
    Value sum;
    for (std::int64_t part = 0; part < total; ++part) {
      sum = add(sum, part_value(part, false));
    }
    different += sum != node_value({0, total}, false) ? 1 : 0;
  }
  EXPECT_GT(different, 5);
}

TEST(SubtreeStack, TakesNoMoreThanSaid) {
  const std::vector<std::vector<std::int64_t>> sizes = {
      {1}, {1, 1}, {1, 1, 1, 1, 1, 1, 1, 1}, {1, 2, 4, 4, 4, 1}, {3, 1, 1}};
  for (const std::vector<std::int64_t>& cut_sizes : sizes) {
    const MicroBatches cuts(cut_sizes);
    for (const std::int64_t total : {1, 5, 8, 24, 63, 64}) {
      for (std::int64_t rank = 0; rank < std::min<std::int64_t>(3, total); ++rank) {
        const Range run = rank_parts(total, std::min<std::int64_t>(3, total), rank);
        const SubtreeNeeds needs = subtree_needs(total, run, cuts);
        std::int64_t slots = 0;
        std::int64_t at_once = 0;
        for (std::int64_t alone = 0; alone < cuts.count(); ++alone) {
          SubtreeStack stack(total, run);
          for (std::int64_t cut = 0; cut <= alone; ++cut) {
            const bool is_last = cut == alone;
            const auto all = stack.advance(is_last ? run.end : cuts.parts(run, cut).end);
            at_once = std::max(at_once, static_cast<std::int64_t>(all.size()));
            for (const auto& one : all) {
              slots = std::max(slots, one.slot + 1);
            }
          }
        }
        EXPECT_GE(needs.slots, slots);
        EXPECT_GE(needs.at_once, at_once);
        EXPECT_LE(needs.slots, 2 * tree_slots(total));
      }
    }
  }
}

TEST(SubtreeStack, OneCutNeedsNoSlot) {
  const Range run{3, 21};
  EXPECT_EQ(subtree_needs(64, run, MicroBatches()).slots, 0);
  EXPECT_EQ(subtree_needs(64, run, MicroBatches()).at_once,
            static_cast<std::int64_t>(maximal_subtrees(64, run).size()));
}

TEST(SubtreeStack, SlotsOfOneAdvanceAreApart) {
  SubtreeStack stack(64, {0, 64});
  stack.advance(5);
  std::set<std::int64_t> slots;
  const auto fresh = stack.advance(15);
  for (const auto& one : fresh) {
    slots.insert(one.slot);
  }
  EXPECT_EQ(slots.size(), fresh.size());
}

}  // namespace
}  // namespace weft
