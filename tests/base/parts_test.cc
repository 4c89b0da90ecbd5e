// The rule of parts, with sums written as expressions: concatenation is not associative, so two
// expressions are equal only if every addition happens between the same two terms.
#include "weft/base/parts.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/base/sum_present.h"

namespace weft {
namespace {

using Terms = std::vector<std::optional<std::string>>;  // one per part
using Partials = std::map<std::pair<std::int64_t, std::int64_t>, std::optional<std::string>>;

/// The definition, word for word: split after the largest power of two below k, skip the absent.
std::optional<std::string> reference(const Terms& terms, std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) {
    return terms[at(begin)];
  }
  std::int64_t half = 1;
  while (half * 2 < end - begin) {
    half *= 2;
  }
  const auto left = reference(terms, begin, begin + half);
  const auto right = reference(terms, begin + half, end);
  if (left && right) {
    return "(" + *left + "+" + *right + ")";
  }
  return left ? left : right;
}

/// sum_tree over `node`, with the terms that `find` knows.
template <typename Find>
std::optional<std::string> sum_strings(Range node, const Find& find) {
  std::vector<std::string> slots(at(tree_slots(node.size())), "garbage");
  const bool any = sum_tree(
      node, 0,
      [&](Range leaf, int depth) {
        const std::optional<std::string> term = find(leaf);
        if (term) {
          slots.at(at(depth)) = *term;
        }
        return term.has_value();
      },
      [&](int depth) {
        slots.at(at(depth)) = "(" + slots.at(at(depth)) + "+" + slots.at(at(depth + 1)) + ")";
        slots.at(at(depth + 1)) = "garbage";
      });
  return any ? std::optional(slots[0]) : std::nullopt;
}

std::optional<std::string> sum_of_parts(const Terms& terms, Range node) {
  return sum_strings(
      node, [&](Range leaf) { return leaf.size() == 1 ? terms[at(leaf.begin)] : std::nullopt; });
}

/// The same of the parts that have a term, found from these alone.
std::optional<std::string> sum_of_present(const Terms& terms) {
  std::vector<std::int64_t> present;
  for (std::size_t part = 0; part < terms.size(); ++part) {
    if (terms[part]) {
      present.push_back(static_cast<std::int64_t>(part));
    }
  }
  if (present.empty()) {
    return std::nullopt;
  }
  std::vector<std::string> slots(at(tree_slots(std::ssize(terms))), "garbage");
  sum_present(
      std::ssize(present), [&](std::int64_t i) { return present[at(i)]; },
      [&](std::int64_t i, int depth) { slots.at(at(depth)) = *terms[at(present[at(i)])]; },
      [&](int depth) {
        slots.at(at(depth)) = "(" + slots.at(at(depth)) + "+" + slots.at(at(depth + 1)) + ")";
        slots.at(at(depth + 1)) = "garbage";
      });
  return slots[0];
}

/// Ranks sum the maximal subtrees of their runs, and somebody adds these up.
std::optional<std::string> sum_by_ranks(const Terms& terms, const std::vector<Range>& runs) {
  Partials partials;
  for (const Range& run : runs) {
    for (const Range& node : maximal_subtrees(static_cast<std::int64_t>(terms.size()), run)) {
      partials[{node.begin, node.end}] = sum_of_parts(terms, node);
    }
  }
  return sum_strings({0, static_cast<std::int64_t>(terms.size())}, [&](Range leaf) {
    const auto found = partials.find({leaf.begin, leaf.end});
    return found == partials.end() ? std::nullopt : found->second;
  });
}

Terms terms_of(int parts, std::uint32_t present) {
  Terms terms(at(parts));
  for (int p = 0; p < parts; ++p) {
    if ((present >> p) & 1U) {
      terms[at(p)] = std::string(1, static_cast<char>('a' + p));
    }
  }
  return terms;
}

/// Every subset of up to 10 parts; all, none, single ones and 300 random ones of more.
std::vector<std::uint32_t> subsets(int parts) {
  std::vector<std::uint32_t> out;
  if (parts <= 10) {
    for (std::uint32_t s = 0; s < (1U << parts); ++s) {
      out.push_back(s);
    }
    return out;
  }
  out = {0, (1U << parts) - 1};
  for (int p = 0; p < parts; ++p) {
    out.push_back(1U << p);
  }
  for (std::uint64_t i = 0; i < 300; ++i) {
    out.push_back(philox(1, i, at(parts))[0] & ((1U << parts) - 1));
  }
  return out;
}

TEST(Parts, ExpressionOfSevenParts) {
  EXPECT_EQ(sum_of_parts(terms_of(7, 0x7F), {0, 7}), "(((a+b)+(c+d))+((e+f)+g))");
  EXPECT_EQ(sum_of_parts(terms_of(7, 0x5A), {0, 7}), "((b+d)+(e+g))");
}

TEST(Parts, SumTreeIsTheDefinition) {
  for (int parts = 1; parts <= 17; ++parts) {
    for (const std::uint32_t present : subsets(parts)) {
      const Terms terms = terms_of(parts, present);
      ASSERT_EQ(sum_of_parts(terms, {0, parts}), reference(terms, 0, parts))
          << parts << " parts, present " << present;
    }
  }
}

TEST(Parts, SumPresentIsTheDefinition) {
  for (int parts = 1; parts <= 17; ++parts) {
    for (const std::uint32_t present : subsets(parts)) {
      const Terms terms = terms_of(parts, present);
      ASSERT_EQ(sum_of_present(terms), reference(terms, 0, parts))
          << parts << " parts, present " << present;
    }
  }
  // Few terms of many parts, far from each other and side by side.
  for (const std::int64_t parts : {4095, 4096, 5000}) {
    for (std::int64_t first = 0; first < parts; first += 97) {
      Terms terms(at(parts));
      for (std::int64_t part = first; part < parts; part += 1 + part % 1001) {
        terms[at(part)] = std::to_string(part);
      }
      ASSERT_EQ(sum_of_present(terms), sum_of_parts(terms, {0, parts})) << first << " of " << parts;
    }
  }
}

TEST(Parts, RanksDoNotChangeTheExpression) {
  for (int parts = 1; parts <= 17; ++parts) {
    for (int ranks = 1; ranks <= parts; ++ranks) {
      std::vector<Range> runs;
      for (int rank = 0; rank < ranks; ++rank) {
        runs.push_back(rank_parts(parts, ranks, rank));
      }
      std::uint64_t count = 0;
      for (const std::uint32_t present : subsets(parts)) {
        if (parts > 8 && ++count % 7 != 1) {
          continue;
        }
        const Terms terms = terms_of(parts, present);
        ASSERT_EQ(sum_by_ranks(terms, runs), reference(terms, 0, parts))
            << parts << " parts, " << ranks << " ranks, present " << present;
      }
    }
  }
}

TEST(Parts, EverySplitIntoRunsGivesTheExpression) {
  for (int parts = 1; parts <= 7; ++parts) {
    for (std::uint32_t cuts = 0; cuts < (1U << (parts - 1)); ++cuts) {
      std::vector<Range> runs;
      std::int64_t begin = 0;
      for (int p = 1; p <= parts; ++p) {
        if (p == parts || ((cuts >> (p - 1)) & 1U) != 0) {
          runs.push_back({begin, p});
          begin = p;
        }
      }
      for (const std::uint32_t present : subsets(parts)) {
        const Terms terms = terms_of(parts, present);
        ASSERT_EQ(sum_by_ranks(terms, runs), reference(terms, 0, parts))
            << parts << " parts, cuts " << cuts << ", present " << present;
      }
    }
  }
}

struct TreeNode {
  Range node;
  Range parent;
};

void collect(Range node, Range parent, std::vector<TreeNode>& out) {
  out.push_back({node, parent});
  if (node.size() > 1) {
    const std::int64_t middle = tree_split(node.begin, node.end);
    collect({node.begin, middle}, node, out);
    collect({middle, node.end}, node, out);
  }
}

bool inside(Range inner, Range outer) {
  return outer.begin <= inner.begin && inner.end <= outer.end;
}

TEST(Parts, MaximalSubtreesAreTheNodesWhoseParentsStickOut) {
  for (std::int64_t total = 1; total <= 40; ++total) {
    std::vector<TreeNode> nodes;
    collect({0, total}, {-1, total + 1}, nodes);
    for (std::int64_t begin = 0; begin <= total; ++begin) {
      for (std::int64_t end = begin; end <= total; ++end) {
        std::vector<Range> expected;
        for (const TreeNode& each : nodes) {  // depth first, so in order
          if (inside(each.node, {begin, end}) && !inside(each.parent, {begin, end})) {
            expected.push_back(each.node);
          }
        }
        EXPECT_EQ(maximal_subtrees(total, {begin, end}), expected);
      }
    }
  }
  EXPECT_THROW(maximal_subtrees(4, {2, 5}), Error);
  EXPECT_TRUE(maximal_subtrees(0, {0, 0}).empty());
}

void collect_nodes(Range node, std::vector<Range>& out) {
  out.push_back(node);
  if (node.size() >= 2) {
    const std::int64_t middle = tree_split(node.begin, node.end);
    collect_nodes({node.begin, middle}, out);
    collect_nodes({middle, node.end}, out);
  }
}

TEST(Parts, SubtreesAreTheNodesOfTheTree) {
  for (std::int64_t total = 1; total <= 70; ++total) {
    std::vector<Range> nodes;
    collect_nodes({0, total}, nodes);
    for (std::int64_t begin = 0; begin <= total; ++begin) {
      for (std::int64_t end = begin; end <= total + 1; ++end) {
        const bool is_node =
            std::find(nodes.begin(), nodes.end(), Range{begin, end}) != nodes.end();
        EXPECT_EQ(is_subtree(total, {begin, end}), is_node)
            << "[" << begin << ", " << end << ") of " << total;
      }
    }
  }
  EXPECT_TRUE(is_subtree(0, {0, 0}));
}

TEST(Parts, TreeSlotsAreEnoughAndNotMore) {
  EXPECT_EQ(tree_slots(0), 1);
  for (std::int64_t total = 1; total <= 130; ++total) {
    int deepest = 0;
    sum_tree(
        Range{0, total}, 0,
        [&](Range node, int depth) {
          if (node.size() == 1) {
            deepest = std::max(deepest, depth);
          }
          return node.size() == 1;
        },
        [](int) {});
    EXPECT_LE(deepest + 1, tree_slots(total)) << total;
    if ((total & (total - 1)) == 0) {
      EXPECT_EQ(deepest + 1, tree_slots(total)) << total;
    }
  }
}

TEST(Parts, TreeSplit) {
  EXPECT_EQ(tree_split(0, 2), 1);
  EXPECT_EQ(tree_split(0, 3), 2);
  EXPECT_EQ(tree_split(0, 4), 2);
  EXPECT_EQ(tree_split(0, 5), 4);
  EXPECT_EQ(tree_split(8, 16), 12);
  EXPECT_THROW(tree_split(3, 4), Error);
}

TEST(Parts, SumPartsAddsUpTheTree) {
  EXPECT_EQ(sum_parts({}), 0.0);
  EXPECT_EQ(sum_parts({2.5}), 2.5);
  const double tiny = 0x1.0p-53;
  // From left to right every tiny term would be lost: 1 + tiny is 1.
  EXPECT_EQ(sum_parts({1.0, 0.0, tiny, tiny}), 1.0 + 2 * tiny);
  EXPECT_EQ(sum_parts({1.0, tiny, tiny}), 1.0);
}

TEST(Parts, PiecesCoverWithoutOverlap) {
  for (std::int64_t n : {0, 1, 5, 64, 1000}) {
    for (std::int64_t count = 1; count <= 9; ++count) {
      std::int64_t end = 0;
      for (std::int64_t i = 0; i < count; ++i) {
        EXPECT_EQ(piece(n, count, i).begin, end);
        end = piece(n, count, i).end;
      }
      EXPECT_EQ(end, n);
    }
  }
}

TEST(Parts, RankSamplesAreThoseOfItsParts) {
  for (std::int64_t n : {0, 3, 17, 100}) {
    for (std::int64_t parts = 1; parts <= 8; ++parts) {
      for (std::int64_t ranks = 1; ranks <= parts; ++ranks) {
        std::int64_t end = 0;
        for (std::int64_t rank = 0; rank < ranks; ++rank) {
          const Range own = rank_parts(parts, ranks, rank);
          const Range samples = rank_samples(n, parts, ranks, rank);
          EXPECT_FALSE(own.empty());
          EXPECT_EQ(samples.begin, end);
          EXPECT_EQ(samples.begin, part_samples(n, parts, own.begin).begin);
          EXPECT_EQ(samples.end, part_samples(n, parts, own.end - 1).end);
          end = samples.end;
        }
        EXPECT_EQ(end, n);
      }
    }
  }
}

}  // namespace
}  // namespace weft
