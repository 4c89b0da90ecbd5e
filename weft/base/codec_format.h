/// CodecFormat: the formats in which vectors of fp32 travel between ranks, their names in
/// configurations, and the bytes that they take.
///
/// An encoded vector of C columns is a sequence of encoded groups of G columns, the last one
/// shorter. A format whose groups have no scale has one group.
///
///   format       a group of n columns                      non-finite   half a step
///   fp32         4n: the floats                            as they are  0
///   fp16, bf16   2n: codes                                 inf, NaN     2^-11, 2^-8 of each |x|
///   fp8_e4m3     2 + n: scale (bf16), codes (OCP E4M3)     NaN          1/27 of the largest |x|
///   fp8_e5m2     2 + n: scale, codes (OCP E5M2)            inf, NaN     1/13
///   int8         2 + n: scale, codes -127 .. 127           NaN (-128)   1/252
///   int4         2 + ceil(n/2): scale, codes -7 .. 7,      NaN (-8)     1/13
///                two's complement, even columns in the low halves
///
/// weft/kernels/codec.h says how scales and codes are made, and makes them; whoever only counts
/// bytes includes this header alone. Source: OCP 8-bit Floating Point Specification 1.0.
///
/// Adding a format: HACKING.md, "A codec".
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

enum class CodecFormat : std::uint8_t {
  kFp32,
  kFp16,
  kBf16,
  kFp8E4m3,
  kFp8E5m2,
  kInt8,
  kInt4,
};

/// Names in configurations, in the order of the enumerators.
inline constexpr std::array<std::string_view, 7> kCodecFormatNames = {
    "fp32", "fp16", "bf16", "fp8_e4m3", "fp8_e5m2", "int8", "int4"};

/// The number of formats; enumerators are 0 to kNumCodecFormats - 1.
inline constexpr int kNumCodecFormats = static_cast<int>(kCodecFormatNames.size());

/// The rounding of codes: to the nearest code, or to one of the two neighbours with the
/// probabilities that make the result right on average.
enum class CodecRounding : std::uint8_t { kNearest, kStochastic };

/// Returns the name in configurations.
constexpr std::string_view to_string(CodecFormat format) {
  return kCodecFormatNames[static_cast<std::size_t>(format)];
}

/// Returns whether the columns of a group share a scale: then a vector may be cut at multiples of G
/// alone.
constexpr bool is_grouped(CodecFormat format) {
  return format != CodecFormat::kFp32 && format != CodecFormat::kFp16 &&
         format != CodecFormat::kBf16;
}

/// Bytes of an encoded group of `cols` columns.
constexpr std::int64_t group_bytes(CodecFormat format, std::int64_t cols) {
  constexpr std::int64_t kScale = 2;  // bf16
  switch (format) {
    case CodecFormat::kFp32:
      return 4 * cols;
    case CodecFormat::kFp16:
    case CodecFormat::kBf16:
      return 2 * cols;
    case CodecFormat::kFp8E4m3:
    case CodecFormat::kFp8E5m2:
    case CodecFormat::kInt8:
      return cols + kScale;
    case CodecFormat::kInt4:
      return (cols + 1) / 2 + kScale;
  }
  return 0;
}

/// Bytes of an encoded vector of `cols` columns in groups of `group`, which is at least 1.
constexpr std::int64_t encoded_bytes(CodecFormat format, std::int64_t group, std::int64_t cols) {
  if (!is_grouped(format) || group >= cols) {
    return group_bytes(format, cols);
  }
  const std::int64_t rest = cols % group;
  return cols / group * group_bytes(format, group) + (rest == 0 ? 0 : group_bytes(format, rest));
}

}  // namespace weft
