// Sums over runs of parts merge in any tree that keeps their order, with the bits of the rule of
// parts.
#include "weft/base/run_sums.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/philox.h"

namespace weft {
namespace {

struct Add {
  void operator()(double& sum, const double& later) const { sum += later; }
};

using Sums = RunSums<double, Add>;

constexpr std::int64_t kValues = 2;

/// Terms whose sums depend on the order of addition.
std::vector<double> make_terms(std::int64_t parts) {
  std::vector<double> terms;
  for (std::int64_t i = 0; i < parts * kValues; ++i) {
    const auto random = philox(5, static_cast<std::uint64_t>(i), 0);
    terms.push_back(1e-3 * static_cast<double>(random[0] % 1000) *
                    static_cast<double>(1 << (random[1] % 30)));
  }
  return terms;
}

std::vector<double> expected_sums(const std::vector<double>& terms) {
  std::vector<double> sums;
  for (std::int64_t v = 0; v < kValues; ++v) {
    std::vector<double> own;
    for (std::size_t p = 0; p < terms.size() / kValues; ++p) {
      own.push_back(terms[p * kValues + static_cast<std::size_t>(v)]);
    }
    sums.push_back(sum_parts(own));
  }
  return sums;
}

/// The sums of ranks [begin, end), each of which has its parts, merged in a tree that `seed` draws;
/// every merge goes over the wire.
Sums merged(const std::vector<double>& terms, std::int64_t ranks, Range of, std::uint64_t seed) {
  const auto parts = static_cast<std::int64_t>(terms.size()) / kValues;
  Sums sums(parts, kValues);
  if (of.size() == 1) {
    const Range run = rank_parts(parts, ranks, of.begin);
    sums.assign(run, std::span(terms).subspan(static_cast<std::size_t>(run.begin * kValues),
                                              static_cast<std::size_t>(run.size() * kValues)));
    return sums;
  }
  const auto draw =
      philox(seed, static_cast<std::uint64_t>(of.begin), static_cast<std::uint64_t>(of.end))[0];
  const std::int64_t middle = of.begin + 1 + draw % (of.size() - 1);
  sums = merged(terms, ranks, {of.begin, middle}, seed);
  const Sums right = merged(terms, ranks, {middle, of.end}, seed);
  std::vector<std::byte> wire(
      static_cast<std::size_t>(Sums::encoded_bytes(most_subtrees(parts), kValues)));
  right.encode(wire);
  Sums arrived(parts, kValues);
  arrived.decode(wire);
  sums.append(arrived);
  return sums;
}

TEST(RunSums, AnyTreeOfRanksHasTheBitsOfTheRuleOfParts) {
  for (const std::int64_t parts : {1, 2, 3, 7, 8, 13, 64, 100}) {
    const std::vector<double> terms = make_terms(parts);
    const std::vector<double> expected = expected_sums(terms);
    for (const std::int64_t ranks : {1, 2, 3, 5, 8, 13, 100}) {
      for (std::uint64_t seed = 0; ranks <= parts && seed < 4; ++seed) {
        const Sums sums = merged(terms, ranks, {0, ranks}, seed);
        const std::vector<double> got(sums.total().begin(), sums.total().end());
        EXPECT_EQ(got, expected) << parts << " parts, " << ranks << " ranks, tree " << seed;
      }
    }
  }
}

// The negative control: from left to right is another order, which these terms show.
TEST(RunSums, TheTermsTellOrdersApart) {
  const std::vector<double> terms = make_terms(100);
  double sum = 0;
  for (std::size_t p = 0; p < 100; ++p) {
    sum += terms[p * kValues];
  }
  EXPECT_NE(sum, expected_sums(terms).front());
}

TEST(RunSums, NoRunHasMoreSubtreesThanPromised) {
  for (std::int64_t parts = 1; parts <= 33; ++parts) {
    for (std::int64_t begin = 0; begin < parts; ++begin) {
      for (std::int64_t end = begin + 1; end <= parts; ++end) {
        EXPECT_LE(static_cast<std::int64_t>(maximal_subtrees(parts, {begin, end}).size()),
                  most_subtrees(parts))
            << "[" << begin << ", " << end << ") of " << parts;
      }
    }
  }
}

TEST(RunSums, NoRankHasMoreSubtreesThanRanksHave) {
  for (const std::int64_t parts : {1, 2, 7, 12, 64, 100}) {
    for (std::int64_t ranks = 1; ranks <= parts; ++ranks) {
      std::int64_t most = 0;
      for (std::int64_t r = 0; r < ranks; ++r) {
        most = std::max(most, std::ssize(maximal_subtrees(parts, rank_parts(parts, ranks, r))));
      }
      EXPECT_EQ(most_subtrees_of_ranks(parts, ranks), most) << ranks << " ranks, " << parts;
      EXPECT_LE(most, most_subtrees(parts));
    }
  }
  EXPECT_EQ(most_subtrees_of_ranks(64, 32), 1) << "shares that are subtrees";
  EXPECT_GT(most_subtrees_of_ranks(64, 5), 1);
}

/// A message for the runs of ranks has no place for one that no rank has.
TEST(RunSums, ARunThatIsTooLongIsRefused) {
  Sums sums(8, 1);
  sums.assign({1, 7}, std::vector<double>(6, 1.0));  // of parts 1, [2, 4), [4, 6), 6
  std::vector<std::byte> wire(static_cast<std::size_t>(Sums::encoded_bytes(most_subtrees(8), 1)));
  sums.encode(wire);
  wire.resize(static_cast<std::size_t>(Sums::encoded_bytes(most_subtrees_of_ranks(8, 4), 1)));
  EXPECT_THROW(sums.encode(wire), Error);
  EXPECT_THROW(sums.decode(wire), Error);
}

TEST(RunSums, TheEmptyRunChangesNothing) {
  Sums sums(4, 1);
  Sums empty(4, 1);
  sums.assign({1, 3}, std::vector<double>{1.0, 2.0});
  sums.append(empty);
  EXPECT_EQ(sums.run(), (Range{1, 3}));
  empty.append(sums);
  EXPECT_EQ(empty.run(), (Range{1, 3}));
}

TEST(RunSums, AMessageOfOtherPartsIsRefused) {
  Sums of_eight(8, 1);
  of_eight.assign({6, 8}, std::vector<double>{1.0, 2.0});
  std::vector<std::byte> wire(static_cast<std::size_t>(Sums::encoded_bytes(most_subtrees(8), 1)));
  of_eight.encode(wire);
  Sums of_four(4, 1);
  EXPECT_THROW(of_four.decode(wire), Error);
}

}  // namespace
}  // namespace weft
