// for each row:  for each vector of columns, an element per 64-bit lane:
//   sum += mix64(mix64(row key + columns · g) xor bits), or 0 where bits are the initial ones
// Where an item has one column, a vector has as many rows, which are brought together first.

#include "weft/kernels/element_hash.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/element_hash.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/error.h"
#include "weft/base/hash.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

using HashLanes = hn::ScalableTag<std::uint64_t>;
using HashVec = hn::Vec<HashLanes>;

constexpr std::uint64_t kHashStep = 0x9e3779b97f4a7c15ULL;

HWY_INLINE HashVec mix(HashVec x) {
  const HashLanes d;
  x = hn::Xor(x, hn::ShiftRight<30>(x));
  x = hn::Mul(x, hn::Set(d, 0xbf58476d1ce4e5b9ULL));
  x = hn::Xor(x, hn::ShiftRight<27>(x));
  x = hn::Mul(x, hn::Set(d, 0x94d049bb133111ebULL));
  return hn::Xor(x, hn::ShiftRight<31>(x));
}

/// Elements side by side at any address, one per lane.
template <typename Bits>
HWY_INLINE HashVec load_bits(const std::byte* place) {
  const HashLanes d;
  const auto* const from = reinterpret_cast<const Bits*>(place);
  if constexpr (sizeof(Bits) == 8) {
    return hn::LoadU(d, from);
  } else if constexpr (sizeof(Bits) == 4) {
    return hn::PromoteTo(d, hn::LoadU(hn::Rebind<Bits, HashLanes>(), from));
  } else {
    const hn::Rebind<std::uint32_t, HashLanes> d32;
    return hn::PromoteTo(d, hn::PromoteTo(d32, hn::LoadU(hn::Rebind<Bits, HashLanes>(), from)));
  }
}

/// Element i of an array at any address.
template <typename Bits>
HWY_INLINE Bits element(const std::byte* from, std::int64_t i) {
  Bits bits;
  std::memcpy(&bits, from + i * static_cast<std::int64_t>(sizeof(Bits)), sizeof(Bits));
  return bits;
}

/// `count` elements from arrays, of which element i has the key keys(i), in vectors of keys(i) to
/// keys(i + lanes - 1) that `vector_keys` makes. `initial` may be null.
template <typename Bits, class VectorKeys, class Keys>
HWY_INLINE HashVec sum_run(HashVec sum,
                           std::int64_t count,
                           const std::byte* values,
                           const std::byte* initial,
                           const VectorKeys& vector_keys,
                           const Keys& keys) {
  const HashLanes d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  constexpr auto kBytes = static_cast<std::int64_t>(sizeof(Bits));
  std::int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const HashVec bits = load_bits<Bits>(values + i * kBytes);
    HashVec word = mix(hn::Xor(mix(vector_keys(i)), bits));
    if (initial != nullptr) {
      word = hn::IfThenZeroElse(hn::Eq(bits, load_bits<Bits>(initial + i * kBytes)), word);
    }
    sum = hn::Add(sum, word);
  }
  std::uint64_t rest = 0;
  for (; i < count; ++i) {
    const auto bits = element<Bits>(values, i);
    if (initial == nullptr || element<Bits>(initial, i) != bits) {
      rest += mix64(mix64(keys(i)) ^ bits);
    }
  }
  return hn::Add(sum, hn::InsertLane(hn::Zero(d), 0, rest));
}

/// Highway's sum of 64-bit lanes adds signed numbers on AVX-512, which may not overflow.
std::uint64_t sum_lanes(HashVec lanes) {
  const HashLanes d;
  alignas(64) std::uint64_t words[hn::MaxLanes(d)];
  hn::Store(lanes, d, words);
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < hn::Lanes(d); ++i) {
    sum += words[i];
  }
  return sum;
}

/// The first elements of `count` rows, one behind the other.
template <typename Bits>
void gather_column(const std::byte* from, std::int64_t stride, std::int64_t count, std::byte* to) {
  for (std::int64_t r = 0; r < count; ++r) {
    std::memcpy(to + r * static_cast<std::int64_t>(sizeof(Bits)), from + r * stride, sizeof(Bits));
  }
}

template <typename Bits>
HashVec sum_column(const ElementBlock& block, std::uint64_t first) {
  constexpr std::int64_t kRows = 64;
  const HashLanes d;
  alignas(64) std::byte values[kRows * sizeof(Bits)];
  alignas(64) std::byte initial[kRows * sizeof(Bits)];
  HashVec sum = hn::Zero(d);
  for (std::int64_t begin = 0; begin < block.rows; begin += kRows) {
    const std::int64_t count = std::min(kRows, block.rows - begin);
    gather_column<Bits>(static_cast<const std::byte*>(block.values) + begin * block.values_stride,
                        block.values_stride, count, values);
    if (block.initial != nullptr) {
      gather_column<Bits>(
          static_cast<const std::byte*>(block.initial) + begin * block.initial_stride,
          block.initial_stride, count, initial);
    }
    const std::uint64_t* const keys = block.row_keys + begin;
    sum = sum_run<Bits>(
        sum, count, values, block.initial == nullptr ? nullptr : initial,
        [&](std::int64_t r) HWY_ATTR { return hn::Add(hn::LoadU(d, keys + r), hn::Set(d, first)); },
        [&](std::int64_t r) { return keys[r] + first; });
  }
  return sum;
}

template <typename Bits>
std::uint64_t sum_of(const ElementBlock& block) {
  const HashLanes d;
  const std::uint64_t first = (static_cast<std::uint64_t>(block.first_col) + 1) * kHashStep;
  if (block.cols == 1) {
    return sum_lanes(sum_column<Bits>(block, first));
  }
  const auto* const values = static_cast<const std::byte*>(block.values);
  const auto* const initial = static_cast<const std::byte*>(block.initial);
  const HashVec steps = hn::Mul(hn::Iota(d, 0U), hn::Set(d, kHashStep));
  HashVec sum = hn::Zero(d);
  for (std::int64_t r = 0; r < block.rows; ++r) {
    const std::uint64_t key = block.row_keys[r] + first;
    const auto key_of = [key](std::int64_t c) {
      return key + static_cast<std::uint64_t>(c) * kHashStep;
    };
    sum = sum_run<Bits>(
        sum, block.cols, values + r * block.values_stride,
        initial == nullptr ? nullptr : initial + r * block.initial_stride,
        [&](std::int64_t c) HWY_ATTR { return hn::Add(hn::Set(d, key_of(c)), steps); }, key_of);
  }
  return sum_lanes(sum);
}

std::uint64_t sum_words(const ElementBlock& block) {
  switch (block.element_bytes) {
    case 1:
      return sum_of<std::uint8_t>(block);
    case 2:
      return sum_of<std::uint16_t>(block);
    case 4:
      return sum_of<std::uint32_t>(block);
    case 8:
      return sum_of<std::uint64_t>(block);
    default:
      fail(ErrorCode::kInternal, "elements of {} bytes", block.element_bytes);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(sum_words);

std::uint64_t cpu::element_hash(const ElementBlock& block) {
  const std::int64_t bytes = block.cols * block.element_bytes;
  WEFT_CHECK(
      block.values_stride >= bytes && (block.initial == nullptr || block.initial_stride >= bytes),
      "rows of {} bytes at distances of {} and {}", bytes, block.values_stride,
      block.initial_stride);
  return HWY_DYNAMIC_DISPATCH(sum_words)(block);
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
