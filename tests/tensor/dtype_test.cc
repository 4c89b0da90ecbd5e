// fp16 and bf16 against their definitions, written with doubles.
#include "weft/tensor/dtype.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/base/row_draws.h"

namespace weft {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

/// What a format is: mantissa bits (without the implicit one) and the smallest normal exponent.
struct Format {
  int mantissa_bits;
  int min_exponent;
  double largest;
};

constexpr Format kHalf = {10, -14, 65504.0};
constexpr Format kBrain = {7, -126, 0x1.FEp127};

/// Round to nearest even: whole multiples of the unit at the value's exponent. Exact in double.
double round_nearest(double value, const Format& format) {
  if (!std::isfinite(value) || value == 0) {
    return value;
  }
  const int exponent = std::max(std::ilogb(value), format.min_exponent);
  const double unit = std::ldexp(1.0, exponent - format.mantissa_bits);
  const double rounded = std::nearbyint(value / unit) * unit;
  return std::abs(rounded) > format.largest ? std::copysign(HUGE_VAL, value) : rounded;
}

void expect_nearest(float value) {
  if (std::isnan(value)) {
    EXPECT_TRUE(std::isnan(to_float(to_float16(value))));
    EXPECT_TRUE(std::isnan(to_float(to_bfloat16(value))));
    return;
  }
  const double half = round_nearest(value, kHalf);
  const double brain = round_nearest(value, kBrain);
  const float half_got = to_float(to_float16(value));
  const float brain_got = to_float(to_bfloat16(value));
  ASSERT_EQ(static_cast<double>(half_got), half) << std::hexfloat << value;
  ASSERT_EQ(static_cast<double>(brain_got), brain) << std::hexfloat << value;
  ASSERT_EQ(std::signbit(half_got), std::signbit(value));
  ASSERT_EQ(std::signbit(brain_got), std::signbit(value));
}

TEST(DType, NamesAndSizes) {
  EXPECT_EQ(to_string(DType::kFloat32), "fp32");
  EXPECT_EQ(to_string(DType::kSplitBFloat16), "split_bf16");
  EXPECT_EQ(size_of(DType::kFloat64), 8);
  EXPECT_EQ(size_of(DType::kSplitBFloat16), 4);
  for (const DType dtype : {DType::kFloat32, DType::kFloat16, DType::kBFloat16, DType::kFloat64,
                            DType::kInt32, DType::kInt64, DType::kUInt8, DType::kSplitBFloat16}) {
    EXPECT_EQ(dtype_from_string(to_string(dtype)), dtype);
  }
  try {
    dtype_from_string("float");
    FAIL();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kConfig);
    EXPECT_NE(std::string(error.what()).find("fp32, fp16, bf16"), std::string::npos);
  }
}

TEST(Float16, AllValuesMeanWhatIeee754Says) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const int exponent = static_cast<int>((bits >> 10) & 31U);
    const auto fraction = static_cast<double>(bits & 1023U);
    const float value = to_float(half);
    ASSERT_EQ(std::signbit(value), bits >= 0x8000);
    if (exponent == 31) {
      ASSERT_TRUE(fraction == 0 ? std::isinf(value) : std::isnan(value));
    } else {
      const double expected =
          exponent == 0 ? std::ldexp(fraction, -24) : std::ldexp(1024 + fraction, exponent - 25);
      ASSERT_EQ(std::abs(static_cast<double>(value)), expected);
    }
  }
}

TEST(DType, AllSmallValuesRoundTrip) {
  for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
    const Float16 half{static_cast<std::uint16_t>(bits)};
    const BFloat16 brain{static_cast<std::uint16_t>(bits)};
    if (std::isnan(to_float(half))) {
      ASSERT_TRUE(std::isnan(to_float(to_float16(to_float(half)))));
    } else {
      ASSERT_EQ(to_float16(to_float(half)), half);
      ASSERT_EQ(to_float16_stochastic(to_float(half), 0), half);
      ASSERT_EQ(to_float16_stochastic(to_float(half), UINT32_MAX), half);
    }
    if (std::isnan(to_float(brain))) {
      ASSERT_TRUE(std::isnan(to_float(to_bfloat16(to_float(brain)))));
    } else {
      ASSERT_EQ(to_bfloat16(to_float(brain)), brain);
      ASSERT_EQ(to_bfloat16_stochastic(to_float(brain), 0), brain);
      ASSERT_EQ(to_bfloat16_stochastic(to_float(brain), UINT32_MAX), brain);
    }
  }
}

// Halfway points and their neighbours are where rounding goes wrong.
TEST(DType, RoundsToNearestEvenAroundEveryHalfwayPoint) {
  for (std::uint32_t bits = 0; bits < 0x7C00; ++bits) {
    const float low = to_float(Float16{static_cast<std::uint16_t>(bits)});
    const float high =
        bits == 0x7BFF ? 65536.0F : to_float(Float16{static_cast<std::uint16_t>(bits + 1)});
    const float middle = (low + high) / 2;
    for (const float x :
         {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, kInfinity)}) {
      expect_nearest(x);
      expect_nearest(-x);
    }
  }
  for (std::uint32_t bits = 0; bits < 0x7F80; ++bits) {
    const float middle = std::bit_cast<float>((bits << 16) | 0x8000U);
    for (const float x :
         {middle, std::nextafter(middle, 0.0F), std::nextafter(middle, kInfinity)}) {
      expect_nearest(x);
      expect_nearest(-x);
    }
  }
}

TEST(DType, RoundsToNearestOnRandomBits) {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    for (const std::uint32_t word : philox(11, i, 0)) {
      expect_nearest(std::bit_cast<float>(word));
      // The same mantissa at exponents that fp16 has.
      expect_nearest(std::bit_cast<float>((word & 0x8FFFFFFFU) | 0x30000000U));
    }
  }
}

/// The halves of a word against their definition in integers of 64 bits.
void expect_halves(std::uint32_t word) {
  const SplitBFloat16 halves = to_split_bfloat16(std::bit_cast<float>(word));
  const std::int64_t high = (std::int64_t{word} + 0x8000) >> 16;
  ASSERT_EQ(halves.high.bits, static_cast<std::uint16_t>(high)) << std::hex << word;
  ASSERT_EQ(halves.low, std::int64_t{word} - high * 0x10000) << std::hex << word;
  // Bits, not values: NaN must come back too.
  ASSERT_EQ(std::bit_cast<std::uint32_t>(to_float(halves)), word);
}

TEST(SplitBFloat16, KeepsEveryWord) {
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0x0000U, 0x0001U, 0x7FFFU, 0x8000U, 0x8001U, 0xFFFFU}) {
      expect_halves((high << 16) | low);
    }
  }
  for (std::uint64_t i = 0; i < 100000; ++i) {
    for (const std::uint32_t word : philox(12, i, 0)) {
      expect_halves(word);
    }
  }
}

TEST(SplitBFloat16, TheHighHalfIsTheNearestAndFiniteBelowTheLimit) {
  for (std::uint64_t i = 0; i < 100000; ++i) {
    for (const std::uint32_t word : philox(13, i, 0)) {
      const auto value = std::bit_cast<float>(word);
      const BFloat16 high = to_split_bfloat16(value).high;
      if (std::isnan(value)) {
        EXPECT_FALSE(has_finite_high_half(value));
      } else if ((word & 0xFFFFU) != 0x8000U) {
        ASSERT_EQ(high, to_bfloat16(value));
      }
      if (has_finite_high_half(value)) {
        ASSERT_TRUE(std::isfinite(to_float(high)));
      }
    }
  }
  // A tie goes away from zero, where to_bfloat16() goes to the even neighbour.
  EXPECT_EQ(to_float(to_split_bfloat16(0x1.01p0F).high), 0x1.02p0F);
  EXPECT_EQ(to_float(to_split_bfloat16(-0x1.01p0F).high), -0x1.02p0F);
  const float limit = std::bit_cast<float>(kSplitLimit);
  const float below = std::nextafter(limit, 0.0F);
  EXPECT_EQ(limit, 0x1.FFp127F);
  EXPECT_TRUE(has_finite_high_half(-below));
  EXPECT_EQ(to_float(to_split_bfloat16(below).high), 0x1.FEp127F);
  EXPECT_FALSE(has_finite_high_half(limit));
  EXPECT_EQ(to_float(to_split_bfloat16(-limit).high), -kInfinity);
  EXPECT_FALSE(has_finite_high_half(kInfinity));
  EXPECT_FALSE(has_finite_high_half(kNaN));
}

TEST(DType, SpecialValues) {
  EXPECT_EQ(to_float(to_float16(65519.0F)), 65504.0F);
  EXPECT_EQ(to_float(to_float16(65520.0F)), kInfinity);
  EXPECT_EQ(to_float(to_bfloat16(std::numeric_limits<float>::max())), kInfinity);
  for (const std::uint32_t random : {0U, 0x1234567U, UINT32_MAX}) {
    EXPECT_EQ(to_float(to_float16_stochastic(1e9F, random)), 65504.0F);
    EXPECT_EQ(to_float(to_float16_stochastic(-65519.0F, random)), -65504.0F);
    EXPECT_EQ(to_float(to_bfloat16_stochastic(std::numeric_limits<float>::max(), random)),
              0x1.FEp127F);
    EXPECT_EQ(to_float(to_float16_stochastic(kInfinity, random)), kInfinity);
    EXPECT_EQ(to_float(to_bfloat16_stochastic(-kInfinity, random)), -kInfinity);
    EXPECT_TRUE(std::isnan(to_float(to_float16_stochastic(kNaN, random))));
    EXPECT_TRUE(std::isnan(to_float(to_bfloat16_stochastic(kNaN, random))));
  }
  // A NaN whose payload lies in the dropped bits only must not become an infinity.
  const float low_payload = std::bit_cast<float>(0x7F800001U);
  EXPECT_TRUE(std::isnan(to_float(to_float16(low_payload))));
  EXPECT_TRUE(std::isnan(to_float(to_bfloat16(low_payload))));
}

// Over all random words, the number of times it goes up is the dropped fraction exactly.
TEST(StochasticRounding, GoesUpAsOftenAsTheDroppedFractionSays) {
  for (const std::uint32_t dropped : {0U, 1U, 0x1000U, 0x1FFFU, 777U}) {
    const float value = std::bit_cast<float>(0x3F800000U + (5U << 13) + dropped);
    const std::uint16_t low = 0x3C00 + 5;
    std::uint32_t ups = 0;
    for (std::uint32_t random = 0; random < 0x2000; ++random) {
      const std::uint16_t bits = to_float16_stochastic(value, random | 0xABCD0000U).bits;
      ASSERT_TRUE(bits == low || bits == low + 1);
      ups += bits == low ? 0 : 1;
    }
    EXPECT_EQ(ups, dropped);
  }
  for (const std::uint32_t dropped : {0U, 1U, 0x8000U, 0xFFFFU, 12345U}) {
    const float value = -std::bit_cast<float>(0x3F810000U + dropped);
    std::uint32_t ups = 0;
    for (std::uint32_t random = 0; random < 0x10000; ++random) {
      const std::uint16_t bits = to_bfloat16_stochastic(value, random | 0x55550000U).bits;
      ASSERT_TRUE(bits == 0xBF81 || bits == 0xBF82);
      ups += bits == 0xBF81 ? 0 : 1;
    }
    EXPECT_EQ(ups, dropped);
  }
}

// The mean of many roundings is the value, also where fp16 is subnormal.
TEST(StochasticRounding, IsUnbiased) {
  constexpr int kDraws = 40000;
  for (const double exponent : {0.0, 10.0, -13.0, -15.0, -18.0, -23.0, -25.0, -27.0}) {
    const auto value = static_cast<float>(1.3717 * std::exp2(exponent));
    double sum = 0;
    for (std::uint64_t i = 0; i < kDraws / 4; ++i) {
      for (const std::uint32_t word : philox(21, i, static_cast<std::uint64_t>(exponent + 64))) {
        sum += static_cast<double>(to_float(to_float16_stochastic(value, word)));
      }
    }
    const double unit = std::exp2(std::max(exponent, -14.0) - 10);
    // One rounding varies by at most half a unit; six deviations of the mean.
    EXPECT_NEAR(sum / kDraws, static_cast<double>(value), 6 * 0.5 * unit / std::sqrt(kDraws));
  }
}

/// A value of the size of 2^exponent that is rounded in every column of some rows.
class RoundedRows {
 public:
  RoundedRows(DrawRule rule, DType dtype, double fraction, int exponent)
      : draws_{.key = 77, .rule = rule},
        dtype_(dtype),
        unit_(std::exp2(dtype == DType::kBFloat16 ? exponent - 7 : std::max(exponent, -14) - 10)),
        value_(static_cast<float>(
            (exponent < -24 ? 0.0 : std::floor(std::exp2(exponent) / unit_) * unit_) +
            fraction * unit_)) {}

  /// Returns what it is rounded to there, less the value, in units of the format.
  [[nodiscard]] double error(std::int64_t row, std::int64_t col) const {
    const std::uint32_t bits = draws_.bits(row, 3, col / 8 * 8)[static_cast<std::size_t>(col % 8)];
    const float got = dtype_ == DType::kBFloat16 ? to_float(to_bfloat16_stochastic(value_, bits))
                                                 : to_float(to_float16_stochastic(value_, bits));
    return (static_cast<double>(got) - static_cast<double>(value_)) / unit_;
  }

 private:
  RowDraws draws_;
  DType dtype_;
  double unit_;
  float value_;
};

/// Elements that have half a word each: the mean is the value, and the errors of the two that have
/// a word together are no more alike than those of others. Subnormal numbers of fp16 look at more
/// than the 16 bits that are an element's own.
void expect_fair_halves(DrawRule rule, DType dtype) {
  constexpr std::int64_t kRows = 20000;
  for (const int exponent : {0, -13, -15, -17, -20, -23, -25}) {
    for (const double fraction : {0.5, 0.25, 0.9}) {
      const RoundedRows rows(rule, dtype, fraction, exponent);
      double even = 0.0;
      double odd = 0.0;
      double both = 0.0;
      for (std::int64_t row = 0; row < kRows; ++row) {
        const double a = rows.error(row, 4);
        const double b = rows.error(row, 5);
        even += a;
        odd += b;
        both += a * b;
      }
      const double variance = fraction * (1.0 - fraction);
      const double most = 4.5 / std::sqrt(static_cast<double>(kRows));
      const std::string what = fmt::format("rule {}, {}, 2^{}, {}", static_cast<int>(rule),
                                           to_string(dtype), exponent, fraction);
      EXPECT_LT(std::abs(even) / kRows, most * std::sqrt(variance)) << what;
      EXPECT_LT(std::abs(odd) / kRows, most * std::sqrt(variance)) << what;
      EXPECT_LT(std::abs(both) / kRows, most * variance) << what;
    }
  }
}

TEST(StochasticRounding, HalvesOfWordsAreUnbiasedAndUncorrelated) {
  for (const DrawRule rule : {DrawRule::kHalfWord, DrawRule::kHalfWordOfSevenRounds}) {
    for (const DType dtype : {DType::kBFloat16, DType::kFloat16}) {
      expect_fair_halves(rule, dtype);
    }
  }
}

TEST(StochasticRounding, TinyValuesStayFiniteAndNearZero) {
  for (const float value : {0x1.8p-40F, 0x1.8p-57F, 0x1.8p-100F, 0x1p-149F, 0.0F}) {
    for (const std::uint32_t random : {0U, 0x7FFFFFFFU, UINT32_MAX}) {
      EXPECT_LE(to_float16_stochastic(value, random).bits, 1);
      EXPECT_EQ(to_float16_stochastic(-value, random).bits & 0x8000, 0x8000);
    }
    EXPECT_EQ(to_float16_stochastic(value, 0).bits, 0);
  }
}

}  // namespace
}  // namespace weft
