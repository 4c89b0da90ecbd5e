/// Element types and the scalar conversions that kernels' plain loops use.
#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

namespace weft {

enum class DType : std::uint8_t { kFloat32, kFloat16, kBFloat16, kFloat64, kInt32, kInt64, kUInt8 };

std::int64_t size_of(DType dtype);
std::string_view to_string(DType dtype);         ///< "fp32", "fp16", "bf16", "fp64", "int32", ...
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

inline float to_float(float value) {
  return value;
}

inline float to_float(BFloat16 value) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(value.bits) << 16);
}

float to_float(Float16 value);

/// Round to nearest, ties to even; NaN stays NaN.
BFloat16 to_bfloat16(float value);
Float16 to_float16(float value);

/// Stochastic rounding: up with probability equal to the dropped fraction. `random` are uniform
/// bits (16 are used for bf16, 13 for normal fp16 results and more for subnormal ones). A value
/// that is representable is unchanged. Finite values never become infinite: they saturate.
BFloat16 to_bfloat16_stochastic(float value, std::uint32_t random);
Float16 to_float16_stochastic(float value, std::uint32_t random);

}  // namespace weft
