#include "weft/base/row_draws.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/philox.h"

namespace weft {
namespace {

using Bits = std::array<std::uint32_t, RowDraws::kColumns>;

constexpr DrawRule kHalfWordRules[] = {DrawRule::kHalfWord, DrawRule::kHalfWordOfSevenRounds};

// The words of Philox(0; 0, 0) are known answers (philox_test.cc).
TEST(RowDraws, KnownAnswers) {
  const RowDraws halves{.key = 0, .rule = DrawRule::kHalfWord};
  EXPECT_EQ(halves.bits(0, 0, 0), (Bits{0x6627e8d5, 0xe8d56627, 0xe169c58d, 0xc58de169, 0xbc57ac4c,
                                        0xac4cbc57, 0x9b00dbd8, 0xdbd89b00}));
  const RowDraws words{.key = 0, .rule = DrawRule::kWord};
  const Bits got = words.bits(0, 0, 0);
  EXPECT_EQ(got[0], 0x6627e8d5U);
  EXPECT_EQ(got[3], 0x9b00dbd8U);
  const RowDraws seven{.key = 0, .rule = DrawRule::kHalfWordOfSevenRounds};
  EXPECT_EQ(seven.bits(0, 0, 0), (Bits{0x5f6fb709, 0xb7095f6f, 0x0d893f64, 0x3f640d89, 0x4f121f81,
                                       0x1f814f12, 0x4f730a48, 0x0a484f73}));
  EXPECT_EQ(RowDraws{}.rule, DrawRule::kHalfWordOfSevenRounds) << "of new jobs";
}

TEST(RowDraws, CountersAreRowStepAndColumn) {
  const std::uint64_t key = random_key(3, RandomPurpose::kTest);
  constexpr std::int64_t kRow = (std::int64_t{1} << 33) + 5;
  for (const std::uint64_t step : {1ULL, 4096ULL, 1ULL << 33}) {
    for (const std::int64_t first : {0, 8, 1024}) {
      const auto col = static_cast<std::uint64_t>(first);
      const Bits words = RowDraws{key, DrawRule::kWord}.bits(kRow, step, first);
      for (std::uint64_t i = 0; i < 8; ++i) {
        EXPECT_EQ(words[i], philox(key, kRow, (step << 20) + (col + i) / 4)[i % 4]);
      }
      for (const DrawRule rule : kHalfWordRules) {
        const Bits halves = RowDraws{key, rule}.bits(kRow, step, first);
        for (std::uint64_t i = 0; i < 8; ++i) {
          const std::uint32_t word =
              philox(key, kRow, (step << 20) + col / 8, rounds_of(rule))[i / 2];
          EXPECT_EQ(halves[i], i % 2 == 0 ? word : (word << 16) | (word >> 16));
        }
      }
    }
  }
}

/// The largest correlation, over pairs of columns of 16, of what `seen` makes of their bits; times
/// the root of the number of rows: of independent ones, the largest of 120 normal numbers.
template <typename Seen>
double largest_correlation(const Seen& seen) {
  constexpr std::size_t kCols = 16;
  constexpr std::int64_t kRows = 20000;
  std::vector<std::array<double, kCols>> values(kRows);
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::size_t col = 0; col < kCols; ++col) {
      values[static_cast<std::size_t>(row)][col] = seen(row, static_cast<std::int64_t>(col));
    }
  }
  double largest = 0.0;
  for (std::size_t a = 0; a < kCols; ++a) {
    for (std::size_t b = a + 1; b < kCols; ++b) {
      double sum = 0.0;
      double squares = 0.0;
      for (const auto& row : values) {
        sum += row[a] * row[b];
        squares += 0.5 * (row[a] * row[a] + row[b] * row[b]);
      }
      largest = std::max(largest, std::abs(sum / squares));
    }
  }
  return largest * std::sqrt(static_cast<double>(kRows));
}

/// The 16 bits that rounding looks at first, as a number around 0, and each of them by itself.
TEST(RowDraws, ColumnsOfARowAreUncorrelated) {
  for (const DrawRule rule : kHalfWordRules) {
    const RowDraws draws{.key = random_key(1, RandomPurpose::kTest), .rule = rule};
    const auto low = [&](std::int64_t row, std::int64_t col) {
      return draws.bits(row, 7, col / 8 * 8)[static_cast<std::size_t>(col % 8)] & 0xFFFFU;
    };
    EXPECT_LT(largest_correlation([&](std::int64_t row, std::int64_t col) {
                return low(row, col) / 32767.5 - 1.0;
              }),
              4.5);
    for (const int bit : {0, 3, 7, 8, 12, 15}) {
      EXPECT_LT(largest_correlation([&](std::int64_t row, std::int64_t col) {
                  return ((low(row, col) >> bit) & 1U) == 0 ? -1.0 : 1.0;
                }),
                4.5)
          << bit;
    }
    // The control: where both columns of a pair have the same half.
    EXPECT_GT(largest_correlation([&](std::int64_t row, std::int64_t col) {
                return low(row, col / 2 * 2) / 32767.5 - 1.0;
              }),
              100.0);
  }
}

/// Returns how far the share of pairs in which a bit differs is from a half, at most over all bits,
/// times twice the root of the number of pairs: of independent words, that is the largest of 128
/// normal numbers. The words of a pair are those of a call and of one whose counter differs in one
/// bit.
double largest_bias(std::uint64_t low_flip, std::uint64_t high_flip, int rounds) {
  constexpr std::uint64_t kPairs = 20000;
  const std::uint64_t key = random_key(2, RandomPurpose::kTest);
  std::array<double, 128> differing{};
  for (std::uint64_t row = 0; row < kPairs; ++row) {
    const std::uint64_t counter = std::uint64_t{9} << 20;  // of step 9
    const auto words = philox(key, 2 * row, counter, rounds);
    const auto others = philox(key, (2 * row) ^ low_flip, counter ^ high_flip, rounds);
    for (std::size_t bit = 0; bit < differing.size(); ++bit) {
      differing[bit] += ((words[bit / 32] ^ others[bit / 32]) >> (bit % 32)) & 1U;
    }
  }
  double largest = 0.0;
  for (const double count : differing) {
    largest = std::max(largest, std::abs(count / kPairs - 0.5));
  }
  return largest * 2.0 * std::sqrt(static_cast<double>(kPairs));
}

/// The next row, the next eight columns and another step change every bit of the words half the
/// time. Too few rounds show.
TEST(RowDraws, NeighboursHaveOtherBits) {
  for (const int rounds : {kPhiloxRounds, kFewestPhiloxRounds}) {
    EXPECT_LT(largest_bias(1, 0, rounds), 5.0) << rounds;
    EXPECT_LT(largest_bias(0, 1, rounds), 5.0) << rounds;
    EXPECT_LT(largest_bias(0, std::uint64_t{1} << 20, rounds), 5.0) << rounds;
  }
  EXPECT_GT(largest_bias(1, 0, 3), 10.0);
  EXPECT_GT(largest_bias(0, 1, 3), 10.0);
  EXPECT_GT(largest_bias(0, std::uint64_t{1} << 20, 3), 10.0);
}

TEST(RowDraws, RowsStepsAndKeysDrawAnew) {
  const RowDraws draws{.key = 5};
  const Bits bits = draws.bits(1, 1, 0);
  EXPECT_NE(draws.bits(2, 1, 0), bits);
  EXPECT_NE(draws.bits(1, 2, 0), bits);
  EXPECT_NE(draws.bits(1, 1, 8), bits);
  EXPECT_NE(RowDraws{.key = 6}.bits(1, 1, 0), bits);
}

}  // namespace
}  // namespace weft
