/// Element types and the scalar conversions that kernels' plain loops use.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace weft {

/// Element types of buffers, rows and state.
enum class DType : std::uint8_t {
  kFloat32,
  kFloat16,
  kBFloat16,
  kFloat64,
  kInt32,
  kInt64,
  kUInt8,
  kSplitBFloat16,  ///< an fp32 word in two halves, see SplitBFloat16
};

/// Bytes of an element; of kSplitBFloat16 those of the word, both halves.
std::int64_t size_of(DType dtype);
std::string_view to_string(DType dtype);         ///< "fp32", "fp16", "bf16", "split_bf16", ...
DType dtype_from_string(std::string_view name);  ///< throws Error(kConfig) with the known names

/// bfloat16 as bits: the upper half of a float.
struct BFloat16 {
  std::uint16_t bits = 0;

  friend bool operator==(BFloat16, BFloat16) = default;
};

/// IEEE 754 binary16 as bits.
struct Float16 {
  std::uint16_t bits = 0;

  friend bool operator==(Float16, Float16) = default;
};

/// An fp32 number in two halves that are kept apart (split_bf16): `high`, a bf16 that reads as the
/// number rounded to nearest, ties away from zero, and `low`, what is missing, in units of the last
/// place of fp32. Their sum as integers, high · 2^16 + low modulo 2^32, is the fp32 word, so
/// nothing is lost. Holds for every word; but from kSplitLimit on the rounded half is an infinity.
/// Source: Kalamkar et al., "Optimizing deep learning recommender systems' training on CPU cluster
/// architectures", SC '20 (there the high half is cut off, not rounded).
struct SplitBFloat16 {
  BFloat16 high;
  std::int16_t low = 0;

  friend bool operator==(SplitBFloat16, SplitBFloat16) = default;
};

/// Magnitudes, as bits, below this have a finite high half: |x| < 2^128 - 2^119.
inline constexpr std::uint32_t kSplitLimit = 0x7F7F8000;

/// Says whether the high half of to_split_bfloat16(value) is finite; that of an infinity or NaN is
/// not.
inline bool has_finite_high_half(float value) {
  return (std::bit_cast<std::uint32_t>(value) & 0x7FFFFFFFU) < kSplitLimit;
}

/// Cuts the fp32 word into its two halves; to_float() gives it back, bit by bit.
inline SplitBFloat16 to_split_bfloat16(float value) {
  // Adding half a unit carries where the low half is at least half a unit. What is left is then
  // negative: the same 16 bits, read as signed.
  const auto word = std::bit_cast<std::uint32_t>(value);
  return {{static_cast<std::uint16_t>((word + 0x8000U) >> 16)},
          std::bit_cast<std::int16_t>(static_cast<std::uint16_t>(word))};
}

/// Returns the value as it is, for loops that take any type of element.
inline float to_float(float value) {
  return value;
}

/// Returns the float with these upper bits and zeros below: exact.
inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

/// Returns the same number, infinity or NaN as fp32: exact.
float to_float(Float16 value);

/// The word, both halves joined.
inline float to_float(SplitBFloat16 value) {
  const auto low = static_cast<std::uint32_t>(static_cast<std::int32_t>(value.low));
  return std::bit_cast<float>((static_cast<std::uint32_t>(value.high.bits) << 16) + low);
}

/// Round to nearest, ties to even; NaN stays NaN.
BFloat16 to_bfloat16(float value);
Float16 to_float16(float value);

/// Stochastic rounding: up with probability equal to the dropped fraction. `random` are uniform
/// bits (16 are used for bf16, 13 for normal fp16 results and more for subnormal ones). A value
/// that is representable is unchanged. Finite values never become infinite: they saturate.
BFloat16 to_bfloat16_stochastic(float value, std::uint32_t random);
Float16 to_float16_stochastic(float value, std::uint32_t random);

}  // namespace weft
