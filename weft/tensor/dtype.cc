#include "weft/tensor/dtype.h"

#include <array>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "weft/base/error.h"

namespace weft {
namespace {

struct DTypeInfo {
  DType dtype;
  std::string_view name;
  std::int64_t size;
};

constexpr std::array<DTypeInfo, 8> kDTypes = {{{DType::kFloat32, "fp32", 4},
                                               {DType::kFloat16, "fp16", 2},
                                               {DType::kBFloat16, "bf16", 2},
                                               {DType::kFloat64, "fp64", 8},
                                               {DType::kInt32, "int32", 4},
                                               {DType::kInt64, "int64", 8},
                                               {DType::kUInt8, "uint8", 1},
                                               {DType::kSplitBFloat16, "split_bf16", 4}}};

const DTypeInfo& info_of(DType dtype) {
  for (const DTypeInfo& info : kDTypes) {
    if (info.dtype == dtype) {
      return info;
    }
  }
  fail(ErrorCode::kInternal, "element type number {} does not exist", static_cast<int>(dtype));
}

// Bits of a float: 1 sign, 8 exponent (bias 127), 23 mantissa; of binary16: 1, 5 (bias 15), 10.
constexpr std::uint32_t kFloatInfinity = 0x7F800000;
constexpr int kDroppedMantissa = 23 - 10;
constexpr std::uint32_t kRebias = static_cast<std::uint32_t>(127 - 15) << 23;
constexpr std::uint32_t kSmallestNormalHalf = static_cast<std::uint32_t>(127 - 14) << 23;
constexpr std::uint16_t kHalfInfinity = 0x7C00;
constexpr std::uint16_t kLargestHalf = 0x7BFF;

struct SplitFloat {
  std::uint16_t sign;       ///< bit 15
  std::uint32_t magnitude;  ///< the bits without the sign
};

SplitFloat split(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  return {static_cast<std::uint16_t>((bits >> 16) & 0x8000U), bits & 0x7FFFFFFFU};
}

/// A float below the smallest normal binary16 as mantissa / 2^shift subnormal units (2^-24 each).
struct SubnormalHalf {
  std::uint32_t mantissa;
  int shift;
};

SubnormalHalf subnormal_half(std::uint32_t magnitude) {
  const auto exponent = static_cast<int>(magnitude >> 23);
  const std::uint32_t fraction = magnitude & 0x7FFFFFU;
  // value = mantissa · 2^(max(exponent, 1) - 150), and one unit is 2^-24.
  return exponent == 0 ? SubnormalHalf{fraction, 125}
                       : SubnormalHalf{fraction | 0x800000U, 126 - exponent};
}

std::uint16_t half_of_nan(std::uint32_t magnitude) {
  return static_cast<std::uint16_t>(0x7E00U | ((magnitude >> kDroppedMantissa) & 0x3FFU));
}

std::uint16_t round_half(std::uint32_t magnitude) {
  if (magnitude > kFloatInfinity) {
    return half_of_nan(magnitude);
  }
  if (magnitude >= kSmallestNormalHalf) {
    const std::uint32_t odd = (magnitude >> kDroppedMantissa) & 1U;
    const std::uint32_t rounded = (magnitude - kRebias + 0xFFFU + odd) >> kDroppedMantissa;
    return rounded >= kHalfInfinity ? kHalfInfinity : static_cast<std::uint16_t>(rounded);
  }
  const SubnormalHalf x = subnormal_half(magnitude);
  if (x.shift >= 25) {
    return 0;  // less than half a unit
  }
  const std::uint32_t odd = (x.mantissa >> x.shift) & 1U;
  return static_cast<std::uint16_t>((x.mantissa + (1U << (x.shift - 1)) - 1 + odd) >> x.shift);
}

std::uint16_t round_half_stochastic(std::uint32_t magnitude, std::uint32_t random) {
  if (magnitude >= kFloatInfinity) {
    return round_half(magnitude);
  }
  if (magnitude >= kSmallestNormalHalf) {
    const std::uint32_t rounded = (magnitude - kRebias + (random & 0x1FFFU)) >> kDroppedMantissa;
    return rounded > kLargestHalf ? kLargestHalf : static_cast<std::uint16_t>(rounded);
  }
  // With more than 32 dropped bits the value is below 2^-9 units, and its lowest bits, which weigh
  // less than 2^-32 units, are cut off.
  SubnormalHalf x = subnormal_half(magnitude);
  if (x.shift > 32) {
    x.mantissa = x.shift - 32 < 32 ? x.mantissa >> (x.shift - 32) : 0;
    x.shift = 32;
  }
  const std::uint64_t mask = (std::uint64_t{1} << x.shift) - 1;
  return static_cast<std::uint16_t>((x.mantissa + (random & mask)) >> x.shift);
}

}  // namespace

std::int64_t size_of(DType dtype) {
  return info_of(dtype).size;
}

std::string_view to_string(DType dtype) {
  return info_of(dtype).name;
}

DType dtype_from_string(std::string_view name) {
  std::vector<std::string> names;
  for (const DTypeInfo& info : kDTypes) {
    if (info.name == name) {
      return info.dtype;
    }
    names.emplace_back(info.name);
  }
  fail(ErrorCode::kConfig, "unknown element type '{}': known are {}", name, fmt::join(names, ", "));
}

float to_float(Float16 value) {
  const auto sign = static_cast<std::uint32_t>(value.bits & 0x8000U) << 16;
  const std::uint32_t exponent = (value.bits >> 10) & 0x1FU;
  const std::uint32_t fraction = value.bits & 0x3FFU;
  if (exponent == 0) {
    const float magnitude = static_cast<float>(fraction) * 0x1.0p-24F;  // exact
    return std::bit_cast<float>(std::bit_cast<std::uint32_t>(magnitude) | sign);
  }
  if (exponent == 31) {
    return std::bit_cast<float>(sign | kFloatInfinity | (fraction << kDroppedMantissa));
  }
  return std::bit_cast<float>(sign | ((exponent << 23) + kRebias) | (fraction << kDroppedMantissa));
}

BFloat16 to_bfloat16(float value) {
  const auto bits = std::bit_cast<std::uint32_t>(value);
  if ((bits & 0x7FFFFFFFU) > kFloatInfinity) {
    return {static_cast<std::uint16_t>((bits >> 16) | 0x40U)};  // quiet, so never an infinity
  }
  const std::uint32_t odd = (bits >> 16) & 1U;
  return {static_cast<std::uint16_t>((bits + 0x7FFFU + odd) >> 16)};
}

Float16 to_float16(float value) {
  const SplitFloat x = split(value);
  return {static_cast<std::uint16_t>(x.sign | round_half(x.magnitude))};
}

BFloat16 to_bfloat16_stochastic(float value, std::uint32_t random) {
  const SplitFloat x = split(value);
  if (x.magnitude >= kFloatInfinity) {
    return to_bfloat16(value);
  }
  // Adding 16 random bits carries into the kept half in `dropped` of 2^16 cases.
  const std::uint32_t rounded = (x.magnitude + (random & 0xFFFFU)) >> 16;
  const std::uint32_t largest = (kFloatInfinity >> 16) - 1;
  return {static_cast<std::uint16_t>(x.sign | (rounded > largest ? largest : rounded))};
}

Float16 to_float16_stochastic(float value, std::uint32_t random) {
  const SplitFloat x = split(value);
  return {static_cast<std::uint16_t>(x.sign | round_half_stochastic(x.magnitude, random))};
}

}  // namespace weft
