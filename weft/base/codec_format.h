/// CodecFormat: the formats in which vectors of fp32 travel between ranks, their names in
/// configurations, and the bytes that they take.
///
/// An encoded vector of C columns is a sequence of encoded groups of G columns, the last one
/// shorter. A format whose groups have no scale has one group. weft/kernels/codec.h says what is in
/// the bytes and encodes them; whoever only counts bytes includes this header alone.
///
/// Adding a format: its enumerator, its name and its group_bytes() here; its codes in
/// weft/kernels/codec_formats.h, reference/codec.cc and cpu/codec.cc.
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
