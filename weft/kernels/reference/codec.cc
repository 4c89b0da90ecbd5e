// Number by number, as the header has it.
#include "weft/kernels/codec.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "weft/base/philox.h"
#include "weft/kernels/codec_formats.h"
#include "weft/tensor/dtype.h"

namespace weft::kernels::reference {
namespace {

using Word = std::uint32_t;

template <typename T>
void put(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof(value));
}

template <typename T>
T get(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof(value));
  return value;
}

/// A group on its way.
struct Group {
  const float* x = nullptr;
  std::int64_t cols = 0;
  std::byte* to = nullptr;
  const Codec* codec = nullptr;
  const CodecDraws* draws = nullptr;
  std::int64_t number = 0;  ///< of the draw
  std::int64_t first_col = 0;

  [[nodiscard]] float cut(std::int64_t i, float limit) const {
    return std::clamp(x[i], -limit, limit);
  }

  [[nodiscard]] Word word(std::int64_t i) const {
    const auto col = static_cast<std::uint64_t>(first_col + i);
    return philox(draws->key, static_cast<std::uint64_t>(number),
                  (draws->step << 20) + col / 4)[col % 4];
  }

  /// y >= 0 as an integer.
  [[nodiscard]] Word round(float y, std::int64_t i, int random_bits) const {
    if (codec->rounding == CodecRounding::kNearest) {
      return static_cast<Word>(std::nearbyintf(y));
    }
    const Word few = word(i) & ((1U << random_bits) - 1);
    return static_cast<Word>(y + std::ldexp(static_cast<float>(few), -random_bits));
  }
};

Word sign_of(float x) {
  return std::signbit(x) ? 1U : 0U;
}

/// The code of |y|, at most the largest.
template <typename F>
Word minifloat(const Group& group, float y, std::int64_t i) {
  const int exponent = y == 0.0F ? 1 - F::kBias : std::max(std::ilogb(y), 1 - F::kBias);
  const float steps = std::ldexp(y, F::kMantissa - exponent);
  return group.round(steps, i, F::kRandomBits) +
         (static_cast<Word>(exponent - (1 - F::kBias)) << F::kMantissa);
}

template <typename F>
Word signed_minifloat(const Group& group, float x, float y, std::int64_t i) {
  const Word sign = sign_of(x) * F::kSign;
  if (std::isfinite(x)) {
    return sign | minifloat<F>(group, y, i);
  }
  return std::isinf(x) && F::kTop == TopCodes::kIeee ? sign | F::kInfinity : sign | F::kNan;
}

template <typename F>
float from_minifloat(Word code) {
  const Word magnitude = code & (F::kSign - 1);
  const Word mantissa = magnitude & (F::kFirstNormal - 1);
  float value = 0.0F;
  if (F::kTop == TopCodes::kIeee && magnitude >= F::kInfinity) {
    value = mantissa == 0 ? INFINITY : NAN;
  } else if (F::kTop == TopCodes::kNanOnly && magnitude == F::kNan) {
    value = NAN;
  } else if (magnitude < F::kFirstNormal) {
    value = std::ldexp(static_cast<float>(mantissa), 1 - F::kBias - F::kMantissa);
  } else {
    const int exponent = static_cast<int>(magnitude >> F::kMantissa);
    value = std::ldexp(static_cast<float>(F::kFirstNormal + mantissa),
                       exponent - F::kBias - F::kMantissa);
  }
  return (code & F::kSign) != 0 ? -value : value;
}

Word bf16_code(const Group& group, float x, std::int64_t i) {
  if (!std::isfinite(x) || group.codec->rounding == CodecRounding::kNearest) {
    return to_bfloat16(x).bits;
  }
  return to_bfloat16_stochastic(x, group.word(i)).bits;
}

Word integer_code(const Group& group, float x, float y, std::int64_t i, int bits) {
  const Word mask = (1U << bits) - 1;
  if (!std::isfinite(x)) {
    return 1U << (bits - 1);
  }
  const Word n = group.round(y, i, 16);
  return (sign_of(x) != 0 ? 0U - n : n) & mask;
}

float from_integer(Word code, int bits) {
  const Word top = 1U << (bits - 1);
  if (code == top) {
    return NAN;
  }
  return static_cast<float>(code < top ? static_cast<int>(code)
                                       : static_cast<int>(code) - (1 << bits));
}

/// The code of column i with the group's scale.
Word code_of(const Group& group, std::int64_t i, float multiplier) {
  const CodecFormat format = group.codec->format;
  const float x = group.x[i];
  const float y = std::min(std::fabs(x) * multiplier, largest_code(format));
  switch (format) {
    case CodecFormat::kFp16:
      return signed_minifloat<Fp16Code>(group, x, y, i);
    case CodecFormat::kBf16:
      return bf16_code(group, std::isfinite(x) ? group.cut(i, kLargestBf16) : x, i);
    case CodecFormat::kFp8E4m3:
      return signed_minifloat<E4m3Code>(group, x, y, i);
    case CodecFormat::kFp8E5m2:
      return signed_minifloat<E5m2Code>(group, x, y, i);
    case CodecFormat::kInt8:
      return integer_code(group, x, y, i, 8);
    case CodecFormat::kInt4:
      return integer_code(group, x, y, i, 4);
    default:
      return 0;
  }
}

CodecClips count(const Group& group) {
  CodecClips counts;
  for (std::int64_t i = 0; i < group.cols; ++i) {
    if (!std::isfinite(group.x[i])) {
      ++counts.non_finite;
    } else if (std::fabs(group.x[i]) > codec_limit(group.codec->format)) {
      ++counts.clipped;
    }
  }
  return counts;
}

float largest_finite(const Group& group) {
  float most = 0.0F;
  for (std::int64_t i = 0; i < group.cols; ++i) {
    most = std::isfinite(group.x[i]) ? std::max(most, std::fabs(group.x[i])) : most;
  }
  return most;
}

void encode_scaled(const Group& group) {
  const float scale = group_scale(largest_finite(group), largest_code(group.codec->format));
  put(group.to, static_cast<std::uint16_t>(std::bit_cast<Word>(scale) >> 16));
  std::byte* const codes = group.to + 2;
  for (std::int64_t i = 0; i < group.cols; ++i) {
    const Word code = code_of(group, i, 1.0F / scale);
    if (group.codec->format != CodecFormat::kInt4) {
      codes[i] = static_cast<std::byte>(code);
    } else {
      codes[i / 2] = i % 2 == 0 ? static_cast<std::byte>(code)
                                : codes[i / 2] | static_cast<std::byte>(code << 4);
    }
  }
}

CodecClips encode_group(const Group& group) {
  if (group.codec->format == CodecFormat::kFp32) {
    std::memcpy(group.to, group.x, static_cast<std::size_t>(4 * group.cols));
    return {};
  }
  const CodecClips counts = count(group);
  switch (group.codec->format) {
    case CodecFormat::kFp16:
    case CodecFormat::kBf16:
      for (std::int64_t i = 0; i < group.cols; ++i) {
        put(group.to + 2 * i, static_cast<std::uint16_t>(code_of(group, i, 1.0F)));
      }
      break;
    default:
      encode_scaled(group);
  }
  return counts;
}

/// Column i of an encoded group.
float decode_column(CodecFormat format, const std::byte* from, std::int64_t i) {
  const auto byte = [from](std::int64_t at) { return static_cast<Word>(from[at]); };
  const float scale = std::bit_cast<float>(static_cast<Word>(get<std::uint16_t>(from)) << 16);
  switch (format) {
    case CodecFormat::kFp16:
      return from_minifloat<Fp16Code>(get<std::uint16_t>(from + 2 * i));
    case CodecFormat::kBf16:
      return to_float(get<BFloat16>(from + 2 * i));
    case CodecFormat::kFp8E4m3:
      return from_minifloat<E4m3Code>(byte(2 + i)) * scale;
    case CodecFormat::kFp8E5m2:
      return from_minifloat<E5m2Code>(byte(2 + i)) * scale;
    case CodecFormat::kInt8:
      return from_integer(byte(2 + i), 8) * scale;
    case CodecFormat::kInt4:
      return from_integer(byte(2 + i / 2) >> (i % 2 == 0 ? 0 : 4) & 15U, 4) * scale;
    case CodecFormat::kFp32:
      break;
  }
  return get<float>(from + 4 * i);
}

CodecClips encode_vector(const EncodeJob& job, std::int64_t v) {
  const std::int64_t bytes = encoded_bytes(job.codec, job.cols);
  const float* const x = job.vectors + (job.rows == nullptr ? v : job.rows[v]) * job.stride;
  std::int64_t number = 0;
  if (job.draws.numbers != nullptr) {
    number = job.draws.numbers[v];
  } else {
    job.draws.vectors.number({v, v + 1}, &number);
  }
  CodecClips counts;
  for_groups(job.codec, job.cols, [&](std::int64_t col, std::int64_t cols, std::int64_t offset) {
    counts += encode_group({.x = x + col,
                            .cols = cols,
                            .to = job.to + v * bytes + offset,
                            .codec = &job.codec,
                            .draws = &job.draws,
                            .number = number,
                            .first_col = job.draws.first_col + col});
  });
  return counts;
}

void decode_vector(const DecodeJob& job, std::int64_t v) {
  const CodecFormat format = job.codec.format;
  const std::int64_t bytes = encoded_bytes(job.codec, job.cols);
  const bool keeps_nan = format == CodecFormat::kFp32 || format == CodecFormat::kBf16;
  float* const x = job.vectors + (job.rows == nullptr ? v : job.rows[v]) * job.stride;
  for_groups(job.codec, job.cols, [&](std::int64_t col, std::int64_t cols, std::int64_t offset) {
    for (std::int64_t i = 0; i < cols; ++i) {
      const float value = decode_column(format, job.from + v * bytes + offset, i);
      x[col + i] = !keeps_nan && std::isnan(value) ? std::bit_cast<float>(0x7FC00000) : value;
    }
  });
}

}  // namespace

void encode(Context& /*ctx*/, std::span<const EncodeJob> jobs) {
  for (const EncodeJob& job : jobs) {
    for (std::int64_t v = 0; v < job.count; ++v) {
      const CodecClips lost = encode_vector(job, v);
      if (job.clips != nullptr) {
        *job.clips += lost;
      }
    }
  }
}

void decode(Context& /*ctx*/, std::span<const DecodeJob> jobs) {
  for (const DecodeJob& job : jobs) {
    for (std::int64_t v = 0; v < job.count; ++v) {
      decode_vector(job, v);
    }
  }
}

}  // namespace weft::kernels::reference
