// First values of rows against plain loops, bit by bit, and against the formulas they stand for.

#include "weft/kernels/initial_values.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <gtest/gtest.h>

#include "tests/kernels/initial_values_parity.h"
#include "weft/base/philox.h"

namespace weft::kernels::test {
namespace {

TEST(InitialRows, PassTheirParityListOnEveryTarget) {
  on_every_target(expect_initial_values_parity);
  on_every_target(expect_listed_rows_parity);
}

/// Rows of a list have the bits that they have among all rows of their table, in any slot.
TEST(InitialRows, OfAListAreThoseOfTheWholeTable) {
  constexpr std::int64_t kRows = 200;
  constexpr std::int64_t kCols = 20;
  const std::vector<std::int64_t> numbers = {199, 0, 77, 78, 5};
  const std::vector<std::int64_t> slots = {1, 3, 0, 6, 2};
  on_every_target([&](Device& device) {
    run_on(device, [&](Context& ctx) {
      for (const InitialRule rule : kInitialRules) {
        const auto table_of = [](const Buffer& memory) {
          return RowTable{.weights = memory.as<void>(),
                          .weight_stride = kCols * 4,
                          .cols = kCols,
                          .dim = kCols};
        };
        const Buffer all(device, kRows * kCols * 4);
        const Buffer some(device, 7 * kCols * 4);
        Copied<std::int64_t> number_list(numbers);
        Copied<std::int64_t> slot_list(slots);
        const InitialRows jobs[] = {
            {.table = table_of(all), .rows = {0, kRows}, .rule = rule, .key = kInitialKey},
            {.table = table_of(some),
             .rows = {0, 5},
             .numbers = number_list.place(ctx),
             .slots = slot_list.place(ctx),
             .rule = rule,
             .key = kInitialKey}};
        set_initial_rows(ctx, jobs);
        for (std::size_t i = 0; i < numbers.size(); ++i) {
          EXPECT_EQ(std::memcmp(some.as<float>() + slots[i] * kCols,
                                all.as<float>() + numbers[i] * kCols, kCols * 4),
                    0)
              << "row " << numbers[i] << " in slot " << slots[i];
        }
      }
    });
  });
}

std::vector<float> make(InitialRule rule, std::int64_t rows, std::int64_t cols, float scale) {
  std::vector<float> values(static_cast<std::size_t>(rows * cols));
  const RowTable table{
      .weights = values.data(), .weight_stride = cols * 4, .cols = cols, .dim = cols};
  const InitialRows initial{
      .table = table, .rows = {0, rows}, .rule = rule, .key = kInitialKey, .scale = scale};
  Context ctx;
  set_initial_rows(ctx, std::span(&initial, 1));
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
          philox(kInitialKey, static_cast<std::uint64_t>(row), static_cast<std::uint64_t>(i / 4));
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
