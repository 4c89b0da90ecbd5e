// First values of rows against plain loops, bit by bit, and against the formulas they stand for.

#include "weft/kernels/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "tests/kernels/sparse_cases.h"
#include "weft/base/philox.h"

namespace weft::kernels::test {
namespace {

constexpr InitialRule kRules[] = {InitialRule::kZero, InitialRule::kUniform, InitialRule::kNormal};
constexpr std::uint64_t kKey = 0xFEDCBA9876543210ULL;

/// What both write into one table, from the same garbage.
void expect_parity(TableCase& table, const InitialRows& initial, Range range) {
  const std::vector<std::byte> before = table.bytes();
  reference::set_initial_rows(initial, range);
  const std::vector<std::byte> expected = table.bytes();
  EXPECT_TRUE(range.empty() || initial.rule == InitialRule::kZero || expected != before);
  for (const std::int64_t target : targets()) {
    const OnTarget on(target);
    table.restore(before);
    set_initial_rows(initial, range);
    EXPECT_TRUE(table.bytes() == expected)
        << "target " << target << " rule " << static_cast<int>(initial.rule) << " "
        << to_string(initial.table.dtype) << " D " << initial.table.cols << " from row "
        << initial.table.first_row + range.begin << " column " << initial.table.first_col;
  }
}

TEST(InitialRows, HaveTheBitsOfPlainLoops) {
  Random random(1);
  for (const DType dtype : kRowTypes) {
    for (const std::int64_t cols : kDims) {
      for (const SparseOptimizerKind update :
           {SparseOptimizerKind::kSgd, SparseOptimizerKind::kRowWiseAdagrad,
            SparseOptimizerKind::kAdam}) {
        TableCase table(random, 67, cols, dtype, update);
        InitialRows initial{.table = table.view,
                            .key = kKey,
                            .state = 0.25F,
                            .state_floats = state_floats(update, cols)};
        for (const InitialRule rule : kRules) {
          initial.rule = rule;
          initial.scale = 0.3F;
          initial.table.first_row = 0;
          initial.table.row_step = 1;
          initial.table.first_col = 0;
          expect_parity(table, initial, {0, 67});
          initial.scale = 0.7F;
          expect_parity(table, initial, {2, 66});  // whole vectors
          // Rows whose numbers grow past 32 bits.
          initial.table.first_row = (std::int64_t{1} << 32) - 40;
          initial.table.row_step = 3;
          initial.table.first_col = 48;
          expect_parity(table, initial, {3, 61});
        }
      }
    }
  }
}

TEST(InitialRows, WiderThanABlockOfScratch) {
  Random random(2);
  for (const std::int64_t cols : {4095, 4096, 4097, 9001}) {
    TableCase table(random, 3, cols, DType::kFloat32, SparseOptimizerKind::kSgd);
    expect_parity(table, {.table = table.view, .rule = InitialRule::kNormal, .key = kKey}, {0, 3});
    expect_parity(table, {.table = table.view, .rule = InitialRule::kUniform, .key = kKey}, {1, 1});
  }
}

std::vector<float> make(InitialRule rule, std::int64_t rows, std::int64_t cols, float scale) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  const RowTable table{
      .weights = values.data(), .weight_stride = cols * 4, .cols = cols, .dim = cols};
  set_initial_rows({.table = table, .rule = rule, .key = kKey, .scale = scale}, {0, rows});
  return values;
}

/// The distance in units of the last place.
std::int64_t ulps(float a, float b) {
  const auto place = [](float x) {
    const auto bits = static_cast<std::int64_t>(std::bit_cast<std::int32_t>(x));
    return bits < 0 ? std::int64_t{-2147483648} - bits : bits;
  };
  return std::abs(place(a) - place(b));
}

/// Box and Muller with the C library's functions, to the accuracy of long double.
TEST(InitialRows, NormalValuesAreThoseOfTheFormula) {
  constexpr std::int64_t kRows = 20000;
  const std::vector<float> values = make(InitialRule::kNormal, kRows, 8, 1.0F);
  std::int64_t off = 0;
  for (std::int64_t row = 0; row < kRows; ++row) {
    for (std::int64_t i = 0; i < 8; i += 2) {
      const auto words =
          philox(kKey, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i / 4));
      const auto word = [&](std::int64_t at) {
        return static_cast<long double>(words[static_cast<std::size_t>(at % 4)]);
      };
      const long double radius = std::sqrt(-2.0L * std::log((word(i) + 1.0L) * 0x1.0p-32L));
      const long double angle = 2.0L * std::numbers::pi_v<long double> * word(i + 1) * 0x1.0p-32L;
      const auto expect = [&](std::int64_t at, long double value) {
        const auto expected = static_cast<float>(value);
        const float got = values[static_cast<std::size_t>(row * 8 + at)];
        ASSERT_LE(ulps(got, expected), 1) << row << ", " << at;
        off += got != expected ? 1 : 0;
      };
      expect(i, radius * std::cos(angle));
      expect(i + 1, radius * std::sin(angle));
    }
  }
  // A relative error of 2^-50 moves a float's rounding in one of 2^26 cases.
  EXPECT_LE(off, 1);
}

TEST(InitialRows, ScaleMultipliesAfterRounding) {
  const std::vector<float> ones = make(InitialRule::kNormal, 100, 16, 1.0F);
  const std::vector<float> thirds = make(InitialRule::kNormal, 100, 16, 0.3F);
  for (std::size_t i = 0; i < ones.size(); ++i) {
    EXPECT_EQ(thirds[i], 0.3F * ones[i]);
  }
}

/// By Philox written again, in Python; they never change, or every job would start elsewhere.
TEST(InitialRows, UniformValuesStay) {
  const std::vector<float> values = make(InitialRule::kUniform, 2, 4, 1.0F);
  const std::vector<float> expected = {0x1.d25c18p-2F,  -0x1.ea9904p-1F, 0x1.cd74f8p-1F,
                                       -0x1.2d8f58p-1F, -0x1.580cf8p-1F, -0x1.e7bb7cp-1F,
                                       -0x1.3fd724p-1F, 0x1.3de60cp-1F};
  EXPECT_EQ(values, expected);
}

}  // namespace
}  // namespace weft::kernels::test
