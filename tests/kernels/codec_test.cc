// Codecs: equal bytes and floats of the plain loops and of every target, bounds, monotony, codes.
#include "weft/kernels/codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <set>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/codec_parity.h"
#include "tests/kernels_dense/per_target.h"

namespace weft::kernels {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr float kMost = std::numeric_limits<float>::max();

using Floats = std::vector<float>;
using Bytes = std::vector<std::byte>;

CodecFormat format(int i) {
  return static_cast<CodecFormat>(i);
}

std::vector<Codec> all_codecs(std::int64_t group) {
  std::vector<Codec> codecs;
  for (int i = 0; i < kNumCodecFormats; ++i) {
    codecs.push_back({format(i), group, CodecRounding::kNearest});
    codecs.push_back({format(i), group, CodecRounding::kStochastic});
  }
  return codecs;
}

constexpr std::array<std::int64_t, 3> kNumbers = {5, 1LL << 40, 7};

CodecDraws draws() {
  return {.key = 0x0123456789ABCDEF, .step = 77, .numbers = kNumbers.data(), .first_col = 16};
}

struct Encoded {
  Bytes bytes;
  CodecClips counts;
};

/// One job of an operation, on the calling thread.
using EncodeFunction = CodecClips (*)(const Codec&, EncodeJob, Range);
using DecodeFunction = void (*)(const Codec&, DecodeJob, Range);

template <auto kOperation>
CodecClips encode_by(const Codec& codec, EncodeJob job, Range vectors) {
  CodecClips lost;
  Context ctx;
  job.codec = codec;
  job.count = vectors.size();
  job.clips = &lost;
  kOperation(ctx, std::span<const EncodeJob>(&job, 1));
  return lost;
}

template <auto kOperation>
void decode_by(const Codec& codec, DecodeJob job, Range vectors) {
  Context ctx;
  job.codec = codec;
  job.count = vectors.size();
  kOperation(ctx, std::span<const DecodeJob>(&job, 1));
}

constexpr EncodeFunction kEncode = encode_by<kernels::encode>;
constexpr DecodeFunction kDecode = decode_by<kernels::decode>;
constexpr EncodeFunction kPlainEncode = encode_by<reference::encode>;
constexpr DecodeFunction kPlainDecode = decode_by<reference::decode>;

/// x holds `vectors` of `cols` columns.
Encoded encode_with(EncodeFunction run, const Codec& codec, const Floats& x, std::int64_t cols) {
  const std::int64_t vectors = static_cast<std::int64_t>(x.size()) / cols;
  Encoded out;
  out.bytes.assign(static_cast<std::size_t>(encoded_bytes(codec, cols) * vectors + 1),
                   std::byte{0xEE});
  out.counts = run(
      codec,
      {.vectors = x.data(), .stride = cols, .cols = cols, .to = out.bytes.data(), .draws = draws()},
      {0, vectors});
  EXPECT_EQ(out.bytes.back(), std::byte{0xEE}) << "written behind the end";
  out.bytes.pop_back();
  return out;
}

Floats decode_with(DecodeFunction run, const Codec& codec, const Bytes& bytes, std::int64_t cols) {
  const std::int64_t vectors = static_cast<std::int64_t>(bytes.size()) / encoded_bytes(codec, cols);
  Floats x(static_cast<std::size_t>(vectors * cols), -1.0F);
  run(codec, {.from = bytes.data(), .vectors = x.data(), .stride = cols, .cols = cols},
      {0, vectors});
  return x;
}

Floats there_and_back(const Codec& codec, const Floats& x) {
  const auto cols = static_cast<std::int64_t>(x.size());
  return decode_with(kDecode, codec, encode_with(kEncode, codec, x, cols).bytes, cols);
}

bool same_bits(const Floats& a, const Floats& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), 4 * a.size()) == 0;
}

/// Three vectors of every kind of number; `wild` of them non-finite or near the end of the range.
Floats numbers(std::int64_t cols, unsigned seed, bool wild) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::uniform_int_distribution<int> choice(0, 19);
  Floats x(static_cast<std::size_t>(3 * cols));
  for (float& value : x) {
    value = normal(random) * std::ldexp(1.0F, choice(random) - 10);
    if (wild) {
      switch (choice(random)) {
        case 0:
          value = kInf;
          break;
        case 1:
          value = -kInf;
          break;
        case 2:
          value = kNan;
          break;
        case 3:
          value = kMost;
          break;
        case 4:
          value = -0.0F;
          break;
        case 5:
          value = 0x1.8p-140F;
          break;
        case 6:
          value = -70000.0F;
          break;
        default:
          break;
      }
    }
  }
  return x;
}

class CodecParity : public PerTarget {};

TEST_P(CodecParity, BytesFloatsAndCountsAreThoseOfThePlainLoops) {
  for (std::int64_t cols = 1; cols <= 300; cols += cols < 70 ? 1 : 23) {
    const std::array<std::int64_t, 7> groups = {1, 2, 5, 16, 31, 128, 1000};
    const std::int64_t group = groups[static_cast<std::size_t>(cols) % groups.size()];
    for (const Codec& codec : all_codecs(group)) {
      const Floats x = numbers(cols, static_cast<unsigned>(cols), cols % 2 == 0);
      const Encoded expected = encode_with(kPlainEncode, codec, x, cols);
      const Encoded got = encode_with(kEncode, codec, x, cols);
      ASSERT_EQ(got.bytes, expected.bytes) << to_string(codec.format) << " " << cols << " " << group
                                           << " " << static_cast<int>(codec.rounding);
      ASSERT_EQ(got.counts, expected.counts) << to_string(codec.format) << " " << cols;
      ASSERT_TRUE(same_bits(decode_with(kDecode, codec, got.bytes, cols),
                            decode_with(kPlainDecode, codec, got.bytes, cols)))
          << to_string(codec.format) << " " << cols;
    }
  }
}

// Which of two zeros a least or largest value is depends on the order of comparison: no byte may.
TEST_P(CodecParity, SignedZerosHaveTheBytesOfThePlainLoops) {
  std::mt19937 random(5);
  for (std::int64_t cols = 1; cols <= 40; ++cols) {
    for (const unsigned others : {0U, 1U}) {  // how many numbers of 8 are neither zero
      Floats x(static_cast<std::size_t>(3 * cols));
      for (float& value : x) {
        const bool negative = random() % 2 == 0;
        const float size = random() % 8 < others ? 1.0F : 0.0F;
        value = negative ? -size : size;
      }
      x[0] = -0.0F;
      for (const Codec& codec : all_codecs(16)) {
        ASSERT_EQ(encode_with(kEncode, codec, x, cols).bytes,
                  encode_with(kPlainEncode, codec, x, cols).bytes)
            << to_string(codec.format) << " " << cols << " " << others;
      }
    }
  }
}

TEST_P(CodecParity, AnyBytesDecodeToThePlainLoopsFloats) {
  std::mt19937 random(3);
  for (const Codec& codec : all_codecs(48)) {
    for (std::int64_t cols = 1; cols <= 150; cols += 7) {
      Bytes bytes(static_cast<std::size_t>(encoded_bytes(codec, cols)));
      std::generate(bytes.begin(), bytes.end(), [&] { return static_cast<std::byte>(random()); });
      ASSERT_TRUE(same_bits(decode_with(kDecode, codec, bytes, cols),
                            decode_with(kPlainDecode, codec, bytes, cols)))
          << to_string(codec.format) << " " << cols;
    }
  }
}

TEST(Codec, PassesItsParityListOnEveryTarget) {
  test::on_every_target(test::expect_codec_parity);
}

INSTANTIATE_TEST_SUITE_P(Targets, CodecParity, tested_targets(), target_name);

TEST(Codec, RowsAreGatheredAndScattered) {
  const Floats x = {1, 2, 3, 4, 5, 6, 7, 8};
  const std::array<std::int32_t, 2> rows = {3, 1};
  for (const Codec& codec : all_codecs(1)) {
    Bytes bytes(static_cast<std::size_t>(2 * encoded_bytes(codec, 2)));
    kEncode(codec,
            {.vectors = x.data(), .stride = 2, .rows = rows.data(), .cols = 2, .to = bytes.data()},
            {0, 2});
    Floats y(11, 0.0F);
    kDecode(
        codec,
        {.from = bytes.data(), .vectors = y.data(), .stride = 3, .rows = rows.data(), .cols = 2},
        {0, 2});
    const Floats expected = {0, 0, 0, 3, 4, 0, 0, 0, 0, 7, 8};
    for (std::size_t i = 0; i < expected.size(); ++i) {
      EXPECT_NEAR(y[i], expected[i], 0.03F * expected[i]) << to_string(codec.format);
    }
  }
}

TEST(Codec, BytesOfAVector) {
  const auto bytes = [](CodecFormat f, std::int64_t group, std::int64_t cols) {
    return encoded_bytes({f, group, CodecRounding::kNearest}, cols);
  };
  EXPECT_EQ(bytes(CodecFormat::kFp32, 8, 20), 80);
  EXPECT_EQ(bytes(CodecFormat::kFp16, 8, 20), 40);
  EXPECT_EQ(bytes(CodecFormat::kInt8, 8, 20), 20 + 3 * 2);
  EXPECT_EQ(bytes(CodecFormat::kFp8E4m3, 128, 20), 22);
  EXPECT_EQ(bytes(CodecFormat::kInt4, 7, 20), 4 + 4 + 3 + 3 * 2);
}

/// Half a step for the largest number of a group, and where steps end.
struct Bound {
  CodecFormat format;
  double share;     ///< of the group's largest |x|
  double relative;  ///< of a number by itself
  double smallest;  ///< added for any number
  double lost;      ///< of a number, where its group's scale is the smallest
};

constexpr std::array<Bound, 6> kBounds = {{
    {CodecFormat::kFp16, 0, 0x1p-11, 0x1p-25, 0},
    {CodecFormat::kBf16, 0, 0x1p-8, 0x1p-134, 0},
    {CodecFormat::kFp8E4m3, 1.0 / 27, 0, 0x1p-136, 0x1p-4},
    {CodecFormat::kFp8E5m2, 1.0 / 13, 0, 0x1p-142, 0x1p-3},
    {CodecFormat::kInt8, 1.0 / 252, 0, 0x1p-127, 0},
    {CodecFormat::kInt4, 1.0 / 13, 0, 0x1p-127, 0},
}};

TEST(Codec, ErrorsAreBounded) {
  std::mt19937 random(11);
  std::normal_distribution<float> normal;
  for (const Bound& bound : kBounds) {
    for (int exponent = -148; exponent <= 125; exponent += 3) {
      Floats x(40);
      std::generate(x.begin(), x.end(), [&] { return std::ldexp(normal(random), exponent); });
      double most = 0.0;
      for (float& value : x) {
        value = bound.format == CodecFormat::kFp16 ? std::clamp(value, -65504.0F, 65504.0F) : value;
        most = std::max(most, std::fabs(static_cast<double>(value)));
      }
      for (const CodecRounding rounding : {CodecRounding::kNearest, CodecRounding::kStochastic}) {
        const double times = rounding == CodecRounding::kNearest ? 1 : 2;
        const Floats y = there_and_back({bound.format, 1000, rounding}, x);
        for (std::size_t i = 0; i < x.size(); ++i) {
          const double size = std::fabs(static_cast<double>(x[i]));
          const double low = most < 57344 * 0x1p-126 ? 1 : 0;
          const double allowed =
              std::max({most * bound.share, size * bound.relative, size * bound.lost * low}) +
              bound.smallest;
          // A part in 10^5: fp32's own roundings.
          ASSERT_LE(std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i])),
                    times * allowed * 1.00001)
              << to_string(bound.format) << " 2^" << exponent;
        }
      }
    }
  }
}

TEST(Codec, BoundsAreNotFarAway) {
  std::mt19937 random(12);
  std::uniform_real_distribution<float> uniform(-1, 1);
  for (const Bound& bound : kBounds) {
    if (bound.share == 0) {
      continue;
    }
    double worst = 0.0;
    for (int trial = 0; trial < 300; ++trial) {
      Floats x(128);
      std::generate(x.begin(), x.end(), [&] { return uniform(random); });
      x[0] = 1.0F;
      x[1] = -1.0F;
      const Floats y = there_and_back({bound.format, 128, CodecRounding::kNearest}, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        worst = std::max(worst, std::fabs(static_cast<double>(y[i]) - static_cast<double>(x[i])));
      }
    }
    EXPECT_GT(worst, 0.9 * bound.share) << to_string(bound.format);
  }
}

TEST(Codec, IsMonotoneInsideAGroup) {
  std::mt19937 random(13);
  std::normal_distribution<float> normal;
  for (int f = 0; f < kNumCodecFormats; ++f) {
    Floats x(300);
    std::generate(x.begin(), x.end(), [&] { return normal(random); });
    std::sort(x.begin(), x.end());
    const Floats y = there_and_back({format(f), 1000, CodecRounding::kNearest}, x);
    EXPECT_TRUE(std::is_sorted(y.begin(), y.end())) << to_string(format(f));
  }
}

TEST(Codec, ZerosStayZeros) {
  for (const Codec& codec : all_codecs(16)) {
    const Floats x(50, 0.0F);
    EXPECT_TRUE(same_bits(there_and_back(codec, x), x)) << to_string(codec.format);
  }
}

TEST(Codec, EveryCodeBehindAScaleSurvives) {
  for (const CodecFormat f :
       {CodecFormat::kFp8E4m3, CodecFormat::kFp8E5m2, CodecFormat::kInt8, CodecFormat::kInt4}) {
    for (const CodecRounding rounding : {CodecRounding::kNearest, CodecRounding::kStochastic}) {
      const Codec codec{f, 256, rounding};
      const std::int64_t cols = f == CodecFormat::kInt4 ? 16 : 256;
      Bytes bytes(static_cast<std::size_t>(encoded_bytes(codec, cols)));
      const std::uint16_t one = 0x3F80;
      std::memcpy(bytes.data(), &one, 2);
      for (std::size_t i = 2; i < bytes.size(); ++i) {
        const std::size_t even = 2 * (i - 2);
        bytes[i] = static_cast<std::byte>(f == CodecFormat::kInt4 ? even + 16 * (even + 1) : i - 2);
      }
      const Floats x = decode_with(kDecode, codec, bytes, cols);
      const Encoded again = encode_with(kEncode, codec, x, cols);
      std::set<float> different;
      for (const float value : x) {
        if (std::isfinite(value)) {
          different.insert(value);
        }
      }
      // All but the NaN codes, of which signs and payloads become one.
      const Floats back = decode_with(kDecode, codec, again.bytes, cols);
      EXPECT_TRUE(same_bits(back, x)) << to_string(f);
      const std::size_t expected = f == CodecFormat::kFp8E4m3   ? 253
                                   : f == CodecFormat::kFp8E5m2 ? 247
                                   : f == CodecFormat::kInt8    ? 255
                                                                : 15;
      EXPECT_EQ(different.size(), expected) << to_string(f);
    }
  }
}

TEST(Codec, OcpNumbers) {
  const Codec e4m3{CodecFormat::kFp8E4m3, 8, CodecRounding::kNearest};
  const Bytes bytes = {std::byte{0x80}, std::byte{0x3F}, std::byte{0x01}, std::byte{0x08},
                       std::byte{0x38}, std::byte{0x7E}, std::byte{0xBC}};
  EXPECT_EQ(decode_with(kDecode, e4m3, bytes, 5), (Floats{0x1p-9F, 0x1p-6F, 1.0F, 448.0F, -1.5F}));
  const Codec e5m2{CodecFormat::kFp8E5m2, 8, CodecRounding::kNearest};
  const Bytes other = {std::byte{0x80}, std::byte{0x3F}, std::byte{0x01}, std::byte{0x04},
                       std::byte{0x3C}, std::byte{0x7B}, std::byte{0xFC}};
  EXPECT_EQ(decode_with(kDecode, e5m2, other, 5),
            (Floats{0x1p-16F, 0x1p-14F, 1.0F, 57344.0F, -kInf}));
}

TEST(Codec, WhatIsNotFiniteIsCountedAndStaysSo) {
  const Floats x = {1.0F, kInf, -2.0F, kNan, -kInf, 0.5F};
  for (const Codec& codec : all_codecs(6)) {
    const Encoded encoded = encode_with(kEncode, codec, x, 6);
    const Floats y = decode_with(kDecode, codec, encoded.bytes, 6);
    EXPECT_EQ(encoded.counts.non_finite, codec.format == CodecFormat::kFp32 ? 0 : 3);
    EXPECT_EQ(encoded.counts.clipped, 0);
    for (std::size_t i = 0; i < x.size(); ++i) {
      EXPECT_EQ(std::isfinite(y[i]), std::isfinite(x[i])) << to_string(codec.format) << " " << i;
    }
    if (codec.format == CodecFormat::kFp16 || codec.format == CodecFormat::kFp8E5m2) {
      EXPECT_EQ(y[1], kInf);
      EXPECT_EQ(y[4], -kInf);
    }
  }
}

TEST(Codec, WhatIsFiniteStaysFinite) {
  const Floats x = {kMost, -kMost, 1.0F, 0x1p-149F, -0x1p127F, kMost};
  for (const Codec& codec : all_codecs(4)) {
    const Encoded encoded = encode_with(kEncode, codec, x, 6);
    EXPECT_EQ(encoded.counts.non_finite, 0);
    const bool exact = codec.format == CodecFormat::kFp32;
    EXPECT_EQ(encoded.counts.clipped > 0, !exact) << to_string(codec.format);
    for (const float y : decode_with(kDecode, codec, encoded.bytes, 6)) {
      EXPECT_TRUE(std::isfinite(y)) << to_string(codec.format);
    }
  }
}

TEST(Codec, StochasticRoundingHasTheRightMean) {
  for (const Codec& codec : all_codecs(2)) {
    if (codec.rounding != CodecRounding::kStochastic || codec.format == CodecFormat::kFp32) {
      continue;
    }
    constexpr int kDraws = 20000;
    const std::array<float, 2> vector = {7.0F, 2.3F};
    double sum = 0.0;
    std::vector<std::int64_t> number(1);
    for (std::int64_t draw = 0; draw < kDraws; ++draw) {
      number[0] = draw;
      Bytes bytes(static_cast<std::size_t>(encoded_bytes(codec, 2)));
      kEncode(codec,
              {.vectors = vector.data(),
               .stride = 2,
               .cols = 2,
               .to = bytes.data(),
               .draws = {.key = 9, .step = 1, .numbers = number.data()}},
              {0, 1});
      sum += static_cast<double>(decode_with(kDecode, codec, bytes, 2)[1]);
    }
    EXPECT_NEAR(sum / kDraws, 2.3, 0.02) << to_string(codec.format);
  }
}

TEST(Codec, AShardsWordsAreThoseOfTheWholeRow) {
  std::mt19937 random(21);
  std::normal_distribution<float> normal;
  Floats x(96);
  std::generate(x.begin(), x.end(), [&] { return normal(random); });
  const Codec codec{CodecFormat::kInt8, 16, CodecRounding::kStochastic};
  Bytes whole(static_cast<std::size_t>(encoded_bytes(codec, 96)));
  Bytes part(static_cast<std::size_t>(encoded_bytes(codec, 32)));
  CodecDraws draw = draws();
  draw.first_col = 0;
  kEncode(codec, {.vectors = x.data(), .stride = 96, .cols = 96, .to = whole.data(), .draws = draw},
          {0, 1});
  draw.first_col = 48;
  kEncode(codec,
          {.vectors = x.data() + 48, .stride = 96, .cols = 32, .to = part.data(), .draws = draw},
          {0, 1});
  EXPECT_TRUE(std::equal(part.begin(), part.end(), whole.begin() + 3 * 18));
  draw.step += 1;
  Bytes later(part.size());
  kEncode(codec,
          {.vectors = x.data() + 48, .stride = 96, .cols = 32, .to = later.data(), .draws = draw},
          {0, 1});
  EXPECT_NE(later, part);
}

}  // namespace
}  // namespace weft::kernels
