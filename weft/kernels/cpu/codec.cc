// for each vector:  where rounding is stochastic, words for its columns
//   for each group:
//     largest |x|, as integers, which finds what is not finite too
//     scale;  for each register of columns: |x| · 1/scale, code, sign, narrowed and stored
//
// A group is read twice, the second time from the first cache. Groups with something that does not
// fit, which are rare, go the same way once more with counts and special codes. Every number is
// computed by itself and without a fused multiply-add, so every target makes the same bits.

#include "weft/kernels/codec.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <cstring>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/codec.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/kernels/codec_formats.h"
#include "weft/kernels/cpu/codec_lanes-inl.h"
#include "weft/kernels/cpu/codec_range.h"
#include "weft/kernels/cpu/random_words-inl.h"
#include "weft/kernels/cpu/scratch.h"
#include "weft/kernels/tasks.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// A group on its way.
struct GroupIn {
  const float* x = nullptr;
  std::int64_t cols = 0;
  const std::uint32_t* words = nullptr;  ///< null where none are drawn
  std::byte* to = nullptr;
};

struct GroupOut {
  const std::byte* from = nullptr;
  std::int64_t cols = 0;
  float* x = nullptr;
};

/// Calls body(is_short, i, count) for registers that cover [0, cols). A short one, the last, goes
/// through a small copy.
template <class Body>
HWY_INLINE void for_registers(std::int64_t cols, const Body& body) {
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(F32()));
  std::int64_t i = 0;
  for (; i + lanes <= cols; i += lanes) {
    body(std::false_type(), i, static_cast<std::size_t>(lanes));
  }
  if (i < cols) {
    body(std::true_type(), i, static_cast<std::size_t>(cols - i));
  }
}

template <class D, class Short, class T>
HWY_INLINE hn::Vec<D> load(D d, Short /*is_short*/, const T* from, std::size_t count) {
  if constexpr (Short::value) {
    HWY_ALIGN T copy[hn::MaxLanes(D())] = {};
    std::memcpy(copy, from, count * sizeof(T));
    return hn::Load(d, copy);
  } else {
    return hn::LoadU(d, from);
  }
}

template <class D, class Short, class T>
HWY_INLINE void store(hn::Vec<D> v, D d, Short /*is_short*/, T* to, std::size_t count) {
  if constexpr (Short::value) {
    HWY_ALIGN T copy[hn::MaxLanes(D())];
    hn::Store(v, d, copy);
    std::memcpy(to, copy, count * sizeof(T));
  } else {
    hn::StoreU(v, d, to);
  }
}

HWY_INLINE UVec magnitude_bits(FVec x) {
  return hn::And(hn::BitCast(U32(), x), set(0x7FFFFFFF));
}

/// The largest |x| as bits; above those of infinity where one is NaN.
HWY_INLINE std::uint32_t largest_bits(const GroupIn& group) {
  auto most = hn::Zero(U32());
  for_registers(group.cols, [&](auto is_short, std::int64_t i, std::size_t count) HWY_ATTR {
    most = hn::Max(most, magnitude_bits(load(F32(), is_short, group.x + i, count)));
  });
  return hn::GetLane(hn::MaxOfLanes(U32(), most));
}

/// The largest finite |x|, and counts of what is above `limit`.
inline float look_closely(const GroupIn& group, float limit, CodecClips& counts) {
  float most = 0.0F;
  for (std::int64_t i = 0; i < group.cols; ++i) {
    const std::uint32_t bits = std::bit_cast<std::uint32_t>(group.x[i]) & 0x7FFFFFFFU;
    const float size = std::bit_cast<float>(bits);
    if (bits >= 0x7F800000U) {
      ++counts.non_finite;
    } else {
      counts.clipped += size > limit ? 1 : 0;
      most = std::max(most, size);
    }
  }
  return most;
}

/// Codes of the group's numbers times `multiplier`.
template <class F, class Rounding, bool kSpecial>
HWY_INLINE void write_codes(const GroupIn& group, float multiplier, typename F::Code* codes) {
  const F32 d;
  const auto factor = hn::Set(d, multiplier);
  const auto largest = hn::Set(d, largest_code(F::kFormat));
  for_registers(group.cols, [&](auto is_short, std::int64_t i, std::size_t count) HWY_ATTR {
    const auto x = load(d, is_short, group.x + i, count);
    const auto bits = hn::BitCast(U32(), x);
    const auto size = hn::BitCast(d, magnitude_bits(x));
    const auto y = hn::Min(hn::Mul(size, factor), largest);
    const auto words = Rounding::kDraws ? hn::LoadU(U32(), group.words + i) : hn::Zero(U32());
    auto code = F::with_sign(F::template magnitude<Rounding>(y, words), bits);
    if constexpr (kSpecial) {
      const auto is_finite = hn::Lt(magnitude_bits(x), set(0x7F800000));
      code = hn::IfThenElse(is_finite, code, F::special(bits));
    }
    const hn::Rebind<typename F::Code, U32> narrow;
    store(hn::TruncateTo(narrow, code), narrow, is_short, codes + i, count);
  });
}

template <class F>
HWY_INLINE void read_codes(const typename F::Code* codes, const GroupOut& group, float scale) {
  const F32 d;
  const hn::Rebind<typename F::Code, U32> narrow;
  const auto factor = hn::Set(d, scale);
  for_registers(group.cols, [&](auto is_short, std::int64_t i, std::size_t count) HWY_ATTR {
    const auto code = hn::PromoteTo(U32(), load(narrow, is_short, codes + i, count));
    auto x = F::to_float(code);
    if constexpr (sizeof(typename F::Code) == 1) {
      x = hn::Mul(x, factor);
    }
    if constexpr (F::kFormat != CodecFormat::kBf16) {
      x = hn::IfThenElse(hn::IsNaN(x), hn::BitCast(d, set(0x7FC00000)), x);
    }
    store(x, d, is_short, group.x + i, count);
  });
}

/// Codes of 4 bits pass through bytes, so many at a time.
inline constexpr std::int64_t kHalvesAtOnce = 256;

inline void join_halves(const std::uint8_t* codes, std::int64_t count, std::uint8_t* to) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; 2 * (i + lanes) <= count; i += lanes) {
    hn::Vec<decltype(d)> even;
    hn::Vec<decltype(d)> odd;
    hn::LoadInterleaved2(d, codes + 2 * i, even, odd);
    hn::StoreU(hn::Or(even, hn::ShiftLeft<4>(odd)), d, to + i);
  }
  for (; 2 * i < count; ++i) {
    const std::uint32_t odd = 2 * i + 1 < count ? codes[2 * i + 1] : 0U;
    to[i] = static_cast<std::uint8_t>(codes[2 * i] | (odd << 4));
  }
}

inline void split_halves(const std::uint8_t* from, std::int64_t count, std::uint8_t* codes) {
  const hn::ScalableTag<std::uint8_t> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  std::int64_t i = 0;
  for (; 2 * (i + lanes) <= count; i += lanes) {
    const auto both = hn::LoadU(d, from + i);
    hn::StoreInterleaved2(hn::And(both, hn::Set(d, std::uint8_t{15})), hn::ShiftRight<4>(both), d,
                          codes + 2 * i);
  }
  for (; 2 * i < count; ++i) {
    codes[2 * i] = from[i] & 15U;
    if (2 * i + 1 < count) {
      codes[2 * i + 1] = from[i] >> 4;
    }
  }
}

template <class F, class Rounding, bool kSpecial>
HWY_INLINE void write_group(const GroupIn& group, float multiplier, std::byte* to) {
  if constexpr (F::kFormat == CodecFormat::kInt4) {
    HWY_ALIGN std::uint8_t codes[kHalvesAtOnce];
    for (std::int64_t i = 0; i < group.cols; i += kHalvesAtOnce) {
      const GroupIn some{.x = group.x + i,
                         .cols = std::min(kHalvesAtOnce, group.cols - i),
                         .words = group.words == nullptr ? nullptr : group.words + i,
                         .to = nullptr};
      write_codes<F, Rounding, kSpecial>(some, multiplier, codes);
      join_halves(codes, some.cols, reinterpret_cast<std::uint8_t*>(to) + i / 2);
    }
  } else {
    write_codes<F, Rounding, kSpecial>(group, multiplier, reinterpret_cast<typename F::Code*>(to));
  }
}

/// Where a group of F has its codes, behind its scale, and how the scale is made.
template <class F>
struct GroupLayout {
  static constexpr bool kScaled = sizeof(typename F::Code) == 1;
  static constexpr std::int64_t kCodes = kScaled ? 2 : 0;

  /// Writes the scale of finite numbers up to `most`; returns what they are multiplied by.
  static float write_scale(const GroupIn& group, float most) {
    if constexpr (kScaled) {
      const float scale = group_scale(most, largest_code(F::kFormat));
      const auto upper = static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale) >> 16);
      std::memcpy(group.to, &upper, sizeof(upper));
      return 1.0F / scale;
    } else {
      return 1.0F;
    }
  }

  static float read_scale(const GroupOut& group) {
    if constexpr (kScaled) {
      std::uint16_t upper = 0;
      std::memcpy(&upper, group.from, sizeof(upper));
      return std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16);
    } else {
      return 1.0F;
    }
  }
};

template <class F, class Rounding>
HWY_INLINE void encode_group(const GroupIn& group, CodecClips& counts) {
  using Layout = GroupLayout<F>;
  constexpr float kLimit = codec_limit(F::kFormat);
  const float most = std::bit_cast<float>(largest_bits(group));
  std::byte* const codes = group.to + Layout::kCodes;
  if (HWY_LIKELY(most <= kLimit)) {  // false where it is NaN
    write_group<F, Rounding, false>(group, Layout::write_scale(group, most), codes);
    return;
  }
  const float finite = look_closely(group, kLimit, counts);
  write_group<F, Rounding, true>(group, Layout::write_scale(group, finite), codes);
}

template <class F>
HWY_INLINE void decode_group(const GroupOut& group) {
  using Layout = GroupLayout<F>;
  const float scale = Layout::read_scale(group);
  if constexpr (F::kFormat == CodecFormat::kInt4) {
    HWY_ALIGN std::uint8_t codes[kHalvesAtOnce];
    const auto* const from = reinterpret_cast<const std::uint8_t*>(group.from) + Layout::kCodes;
    for (std::int64_t i = 0; i < group.cols; i += kHalvesAtOnce) {
      const GroupOut some{
          .from = nullptr, .cols = std::min(kHalvesAtOnce, group.cols - i), .x = group.x + i};
      split_halves(from + i / 2, some.cols, codes);
      read_codes<F>(codes, some, scale);
    }
  } else {
    read_codes<F>(reinterpret_cast<const typename F::Code*>(group.from + Layout::kCodes), group,
                  scale);
  }
}

template <class F, class Rounding>
CodecClips encode_vectors(const EncodeJob& job, Range range) {
  const Codec& codec = job.codec;
  CodecClips counts;
  const std::int64_t bytes = encoded_bytes(codec, job.cols);
  const RoundKeys keys(job.draws.key);
  std::uint32_t* words = nullptr;
  if constexpr (Rounding::kDraws) {
    words = reinterpret_cast<std::uint32_t*>(ThreadScratch::get(job.cols + 2 * kSpareWords));
  }
  for (std::int64_t v = range.begin; v < range.end; ++v) {
    const float* const x = job.vectors + (job.rows == nullptr ? v : job.rows[v]) * job.stride;
    if constexpr (Rounding::kDraws) {
      const std::int64_t number = job.draws.numbers == nullptr ? 0 : job.draws.numbers[v];
      const std::uint64_t high =
          (job.draws.step << 20) + static_cast<std::uint64_t>(job.draws.first_col / 4);
      random_words(keys, static_cast<std::uint64_t>(number), high, job.cols, words);
    }
    for_groups(codec, job.cols,
               [&](std::int64_t col, std::int64_t cols, std::int64_t offset) HWY_ATTR {
                 const GroupIn group{.x = x + col,
                                     .cols = cols,
                                     .words = words == nullptr ? nullptr : words + col,
                                     .to = job.to + v * bytes + offset};
                 encode_group<F, Rounding>(group, counts);
               });
  }
  return counts;
}

template <class F>
void decode_vectors(const DecodeJob& job, Range range) {
  const Codec& codec = job.codec;
  const std::int64_t bytes = encoded_bytes(codec, job.cols);
  for (std::int64_t v = range.begin; v < range.end; ++v) {
    float* const x = job.vectors + (job.rows == nullptr ? v : job.rows[v]) * job.stride;
    for_groups(
        codec, job.cols, [&](std::int64_t col, std::int64_t cols, std::int64_t offset) HWY_ATTR {
          const GroupOut group{.from = job.from + v * bytes + offset, .cols = cols, .x = x + col};
          decode_group<F>(group);
        });
  }
}

/// Calls run with the lanes of a format.
template <class Run>
auto with_format(CodecFormat format, const Run& run) {
  switch (format) {
    case CodecFormat::kFp16:
      return run(Fp16Lanes());
    case CodecFormat::kFp8E4m3:
      return run(E4m3Lanes());
    case CodecFormat::kFp8E5m2:
      return run(E5m2Lanes());
    case CodecFormat::kInt8:
      return run(Int8Lanes());
    case CodecFormat::kInt4:
      return run(Int4Lanes());
    default:
      return run(Bf16Lanes());
  }
}

CodecClips encode_any(const EncodeJob& job, Range range) {
  return with_format(job.codec.format, [&](auto lanes) {
    return job.codec.rounding == CodecRounding::kNearest
               ? encode_vectors<decltype(lanes), Nearest>(job, range)
               : encode_vectors<decltype(lanes), Stochastic>(job, range);
  });
}

void decode_any(const DecodeJob& job, Range range) {
  with_format(job.codec.format, [&](auto lanes) { decode_vectors<decltype(lanes)>(job, range); });
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(encode_any);
HWY_EXPORT(decode_any);

CodecClips cpu::encode_range(const EncodeJob& job, Range range) {
  if (job.codec.format != CodecFormat::kFp32) {
    return HWY_DYNAMIC_DISPATCH(encode_any)(job, range);
  }
  const auto bytes = static_cast<std::size_t>(4 * job.cols);
  for (std::int64_t v = range.begin; v < range.end; ++v) {
    const float* const x = job.vectors + (job.rows == nullptr ? v : job.rows[v]) * job.stride;
    std::memcpy(job.to + static_cast<std::size_t>(v) * bytes, x, bytes);
  }
  return {};
}

void cpu::decode_range(const DecodeJob& job, Range range) {
  if (job.codec.format != CodecFormat::kFp32) {
    HWY_DYNAMIC_DISPATCH(decode_any)(job, range);
    return;
  }
  const auto bytes = static_cast<std::size_t>(4 * job.cols);
  for (std::int64_t v = range.begin; v < range.end; ++v) {
    float* const x = job.vectors + (job.rows == nullptr ? v : job.rows[v]) * job.stride;
    std::memcpy(x, job.from + static_cast<std::size_t>(v) * bytes, bytes);
  }
}

namespace {

// A task takes 20 to 100 microseconds, against 5 to wake a thread.
constexpr std::int64_t kFloatsPerTask = 65536;
// Vectors whose draws are found at once.
constexpr std::int64_t kDrawsAtOnce = 256;

std::int64_t codec_tasks(std::int64_t vectors, std::int64_t cols) {
  return (vectors * cols + kFloatsPerTask - 1) / kFloatsPerTask;
}

/// Finds the draws of some vectors at a time.
CodecClips encode_drawn(const EncodeJob& job, Range vectors) {
  const std::int64_t bytes = encoded_bytes(job.codec, job.cols);
  std::array<std::int64_t, kDrawsAtOnce> numbers;
  CodecClips lost;
  EncodeJob some = job;
  some.draws.numbers = numbers.data();
  for (std::int64_t first = vectors.begin; first < vectors.end; first += kDrawsAtOnce) {
    const Range range{first, std::min(first + kDrawsAtOnce, vectors.end)};
    job.draws.vectors.number(range, numbers.data());
    some.vectors = job.vectors + (job.rows == nullptr ? first * job.stride : 0);
    some.rows = job.rows == nullptr ? nullptr : job.rows + first;
    some.to = job.to + first * bytes;
    lost += cpu::encode_range(some, {0, range.size()});
  }
  return lost;
}

void add_clips(const CodecClips& lost, CodecClips* to) {
  if (to != nullptr && lost != CodecClips{}) {
    std::atomic_ref(to->non_finite).fetch_add(lost.non_finite, std::memory_order_relaxed);
    std::atomic_ref(to->clipped).fetch_add(lost.clipped, std::memory_order_relaxed);
  }
}

}  // namespace

void cpu::encode(Context& ctx, std::span<const EncodeJob> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return codec_tasks(jobs[at(i)].count, jobs[at(i)].cols); },
      [&](std::int64_t i, std::int64_t task) {
        const EncodeJob& job = jobs[at(i)];
        const Range vectors = piece(job.count, codec_tasks(job.count, job.cols), task);
        const bool draws =
            job.codec.rounding == CodecRounding::kStochastic && job.draws.numbers == nullptr;
        add_clips(draws ? encode_drawn(job, vectors) : encode_range(job, vectors), job.clips);
      });
}

void cpu::decode(Context& ctx, std::span<const DecodeJob> jobs) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return codec_tasks(jobs[at(i)].count, jobs[at(i)].cols); },
      [&](std::int64_t i, std::int64_t task) {
        const DecodeJob& job = jobs[at(i)];
        decode_range(job, piece(job.count, codec_tasks(job.count, job.cols), task));
      });
}

}  // namespace weft::kernels

#endif
