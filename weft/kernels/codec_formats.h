/// Private to kernels/: the numbers that make a codec's format.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>

#include "weft/kernels/codec.h"

namespace weft::kernels {

/// What a minifloat's codes of the highest exponent mean.
enum class TopCodes : std::uint8_t {
  kIeee,     ///< infinities and NaN
  kNanOnly,  ///< numbers, but for the last, which is NaN
};

/// A sign, exponents and a mantissa.
template <int kExponentBits, int kMantissaBits, int kExponentBias, TopCodes kTopCodes>
struct Minifloat {
  static constexpr int kBits = 1 + kExponentBits + kMantissaBits;
  static constexpr int kMantissa = kMantissaBits;
  static constexpr int kBias = kExponentBias;
  static constexpr TopCodes kTop = kTopCodes;
  static constexpr std::uint32_t kSign = 1U << (kBits - 1);
  static constexpr std::uint32_t kFirstNormal = 1U << kMantissa;
  static constexpr std::uint32_t kInfinity = ((1U << kExponentBits) - 1) << kMantissa;
  static constexpr std::uint32_t kNan =
      kTop == TopCodes::kNanOnly ? kSign - 1 : kInfinity | (kFirstNormal >> 1);
  /// Random bits of stochastic rounding: those that fit behind an integer of the mantissa.
  static constexpr int kRandomBits = kMantissa < 7 ? 16 : 22 - kMantissa;
};

using Fp16Code = Minifloat<5, 10, 15, TopCodes::kIeee>;
using E4m3Code = Minifloat<4, 3, 7, TopCodes::kNanOnly>;
using E5m2Code = Minifloat<5, 2, 15, TopCodes::kIeee>;

inline constexpr float kLargestFloat = std::numeric_limits<float>::max();

/// Upper 16 bits of a float, the others 0.
constexpr float cut_to_bf16(float x) {
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(x) & 0xFFFF0000U);
}

inline constexpr float kLargestBf16 = cut_to_bf16(kLargestFloat);
inline constexpr float kSmallestScale = 0x1.0p-126F;

/// Of formats with a scale, whose largest code is `largest`: the scale whose product with it is
/// finite.
constexpr float largest_scale(float largest) {
  return cut_to_bf16(kLargestFloat / largest);
}

/// Of a group whose finite numbers are at most `most`.
constexpr float group_scale(float most, float largest) {
  const auto bits = std::bit_cast<std::uint32_t>(most / largest);
  const float up = std::bit_cast<float>((bits + 0xFFFFU) & 0xFFFF0000U);
  const float cap = largest_scale(largest);
  return up < kSmallestScale ? kSmallestScale : up > cap ? cap : up;
}

/// The largest code of a format as a number: of fp16 and bf16 the largest number itself.
constexpr float largest_code(CodecFormat format) {
  switch (format) {
    case CodecFormat::kFp16:
      return 65504.0F;
    case CodecFormat::kBf16:
      return kLargestBf16;
    case CodecFormat::kFp8E4m3:
      return 448.0F;
    case CodecFormat::kFp8E5m2:
      return 57344.0F;
    case CodecFormat::kInt8:
      return 127.0F;
    case CodecFormat::kInt4:
      return 7.0F;
    case CodecFormat::kFp32:
      break;
  }
  return kLargestFloat;
}

/// Larger numbers are cut off.
constexpr float codec_limit(CodecFormat format) {
  switch (format) {
    case CodecFormat::kFp8E4m3:
    case CodecFormat::kFp8E5m2:
    case CodecFormat::kInt8:
    case CodecFormat::kInt4:
      return largest_scale(largest_code(format)) * largest_code(format);
    default:
      return largest_code(format);
  }
}

/// Calls body(first column, columns, byte offset) for the groups of a vector.
template <typename Body>
void for_groups(const Codec& codec, std::int64_t cols, const Body& body) {
  const std::int64_t step = is_grouped(codec.format) && codec.group < cols ? codec.group : cols;
  const std::int64_t bytes = group_bytes(codec.format, step);
  std::int64_t offset = 0;
  for (std::int64_t col = 0; col < cols; col += step, offset += bytes) {
    body(col, col + step < cols ? step : cols - col, offset);
  }
}

}  // namespace weft::kernels
