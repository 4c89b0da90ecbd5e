// Private to kernels/cpu: the steps of a row's update. Included once per Highway target.
//
// Rows are padded with zeros to whole blocks of 16 columns, so that no loop has a tail; a row of
// 16·k columns is used where it lies, others are copied first.

#if defined(WEFT_KERNELS_CPU_ROW_UPDATE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_ROW_UPDATE_INL_H_
#undef WEFT_KERNELS_CPU_ROW_UPDATE_INL_H_
#else
#define WEFT_KERNELS_CPU_ROW_UPDATE_INL_H_
#endif

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/row_statistics.h"
#include "weft/kernels/sparse_update.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// Scratch of one row; every array is padded to whole blocks.
struct RowScratch {
  std::int64_t padded;
  float* row;       ///< the row as fp32, where it cannot be used in place
  float* gradient;  ///< a copy, likewise
  float* state;     ///< copies of m and v, likewise
  float* new_row;
  float* new_state;  ///< m, then v
  float* blocks;     ///< sums of squares
  std::uint32_t* random;
  std::uint16_t* half;  ///< the row in 16 bits
  float* slots;         ///< partial sums, one per depth of the tree of parts
};

/// Calls body(i) for vectors that cover [0, padded).
template <class Body>
HWY_INLINE void for_padded(std::int64_t padded, const Body& body) {
  const hn::ScalableTag<float> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < padded; i += lanes) {
    body(d, i);
  }
}

inline void zero_tail(float* values, std::int64_t cols, std::int64_t padded) {
  for (std::int64_t i = cols; i < padded; ++i) {
    values[i] = 0.0F;
  }
}

/// `values` if they are whole blocks, else a padded copy.
inline const float* pad(const float* values, std::int64_t cols, std::int64_t padded, float* copy) {
  if (cols == padded) {
    return values;
  }
  std::memcpy(copy, values, static_cast<std::size_t>(cols) * sizeof(float));
  zero_tail(copy, cols, padded);
  return copy;
}

template <class Row>
void widen(const typename Row::Element* from, std::int64_t padded, float* to) {
  for_padded(padded, [&](auto d, std::int64_t i)
                         HWY_ATTR { hn::StoreU(Row::load(d, from + i), d, to + i); });
}

/// The fp32 words of a row in two halves.
inline const float* join_row(const RowTable& table, std::int64_t row, const RowScratch& scratch) {
  const auto* const high = reinterpret_cast<const std::uint16_t*>(
      static_cast<const char*>(table.weights) + row * table.weight_stride);
  const auto* const low = reinterpret_cast<const std::int16_t*>(
      static_cast<const char*>(table.low) + row * table.low_stride);
  for_columns(0, table.cols, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint16_t, decltype(d)> du16;
    const hn::Rebind<std::int16_t, decltype(d)> di16;
    const auto top = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, high + i)));
    const auto rest = hn::BitCast(du, hn::PromoteTo(di, hn::LoadU(di16, low + i)));
    hn::StoreU(hn::BitCast(d, hn::Add(top, rest)), d, scratch.row + i);
  });
  zero_tail(scratch.row, table.cols, scratch.padded);
  return scratch.row;
}

/// Writes fp32 words as a row in two halves.
inline void write_halves(const RowTable& table, std::int64_t row, const float* values) {
  auto* const high = reinterpret_cast<std::uint16_t*>(static_cast<char*>(table.weights) +
                                                      row * table.weight_stride);
  auto* const low =
      reinterpret_cast<std::uint16_t*>(static_cast<char*>(table.low) + row * table.low_stride);
  for_columns(0, table.cols, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto word = hn::BitCast(du, hn::LoadU(d, values + i));
    const auto top = hn::ShiftRight<16>(hn::Add(word, hn::Set(du, 0x8000U)));
    hn::StoreU(hn::TruncateTo(d16, top), d16, high + i);
    hn::StoreU(hn::TruncateTo(d16, word), d16, low + i);
  });
}

/// The row as padded fp32.
inline const float* read_row(const RowTable& table, std::int64_t row, const RowScratch& scratch) {
  const char* const at = static_cast<const char*>(table.weights) + row * table.weight_stride;
  if (table.dtype == DType::kFloat32) {
    return pad(reinterpret_cast<const float*>(at), table.cols, scratch.padded, scratch.row);
  }
  if (table.dtype == DType::kSplitBFloat16) {
    return join_row(table, row, scratch);
  }
  const auto* half = reinterpret_cast<const std::uint16_t*>(at);
  if (table.cols != scratch.padded) {
    std::memset(scratch.half, 0, static_cast<std::size_t>(scratch.padded) * 2);
    std::memcpy(scratch.half, at, static_cast<std::size_t>(table.cols) * 2);
    half = scratch.half;
  }
  if (table.dtype == DType::kBFloat16) {
    widen<Bf16Row>(half, scratch.padded, scratch.row);
  } else {
    widen<Fp16Row>(half, scratch.padded, scratch.row);
  }
  return scratch.row;
}

/// The sum of 16 squares: lane i + i+8, then i+4, i+2, i+1. Vectors of 128 bits on every target.
HWY_INLINE float sum_block(hn::Vec<hn::FixedTag<float, 4>> s0,
                           hn::Vec<hn::FixedTag<float, 4>> s1,
                           hn::Vec<hn::FixedTag<float, 4>> s2,
                           hn::Vec<hn::FixedTag<float, 4>> s3) {
  const auto by8_low = hn::Add(s0, s2);
  const auto by8_high = hn::Add(s1, s3);
  const auto by4 = hn::Add(by8_low, by8_high);
  const auto by2 = hn::Add(by4, hn::Shuffle1032(by4));
  return hn::GetLane(hn::Add(by2, hn::Shuffle2301(by2)));
}

/// Sums of squares of g + decay·w per block; w is not read where decay is 0.
template <bool kL2>
void squares(const float* g, const float* w, float decay, std::int64_t padded, float* out) {
  const hn::FixedTag<float, 4> d;
  const auto factor = hn::Set(d, decay);
  const auto square = [&](std::int64_t i) HWY_ATTR {
    auto value = hn::LoadU(d, g + i);
    if constexpr (kL2) {
      value = hn::Add(value, hn::Mul(factor, hn::LoadU(d, w + i)));
    }
    return hn::Mul(value, value);
  };
  for (std::int64_t i = 0; i < padded; i += kStatisticBlock) {
    out[i / kStatisticBlock] = sum_block(square(i), square(i + 4), square(i + 8), square(i + 12));
  }
}

inline void gradient_squares(
    const UpdateParams& p, const float* g, const float* w, std::int64_t padded, float* out) {
  if (p.decay == WeightDecay::kL2) {
    squares<true>(g, w, p.weight_decay, padded, out);
  } else {
    squares<false>(g, w, 0.0F, padded, out);
  }
}

constexpr std::int32_t kInfinity = 0x7F800000;

/// Whether all magnitudes, as bits, are below `limit`: one AND and one maximum per vector.
inline bool all_below(std::int32_t limit, const float* values, std::int64_t padded) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto magnitude_mask = hn::Set(di, 0x7FFFFFFF);
  auto largest = hn::Zero(di);
  for (std::int64_t i = 0; i < padded; i += lanes) {
    const auto bits = hn::BitCast(di, hn::LoadU(d, values + i));
    largest = hn::Max(largest, hn::And(bits, magnitude_mask));
  }
  return hn::AllTrue(di, hn::Lt(largest, hn::Set(di, limit)));
}

inline bool all_finite(const float* values, std::int64_t padded) {
  return all_below(kInfinity, values, padded);
}

/// Whether values can be written as a row; infinities and NaN cannot.
inline bool all_storable(DType dtype, const float* values, std::int64_t padded) {
  const auto limit =
      dtype == DType::kSplitBFloat16 ? static_cast<std::int32_t>(kSplitLimit) : kInfinity;
  return all_below(limit, values, padded);
}

/// A row before and after.
struct RowStep {
  const float* g;
  const float* w;
  const float* m;  ///< elementwise state
  const float* v;
  float* new_w;
  float* new_m;
  float* new_v;
  std::int64_t padded;
};

template <bool kL2, class D>
HWY_INLINE hn::Vec<D> decayed(D d, const UpdateParams& p, const RowStep& r, std::int64_t i) {
  auto g = hn::LoadU(d, r.g + i);
  if constexpr (kL2) {
    g = hn::Add(g, hn::Mul(hn::Set(d, p.weight_decay), hn::LoadU(d, r.w + i)));
  }
  return g;
}

template <bool kL2>
void sgd(const UpdateParams& p, const RowStep& r) {
  for_padded(r.padded, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto kept = hn::Mul(hn::Set(d, p.keep), hn::LoadU(d, r.w + i));
    const auto move = hn::Mul(hn::Set(d, p.learning_rate), decayed<kL2>(d, p, r, i));
    hn::StoreU(hn::Sub(kept, move), d, r.new_w + i);
  });
}

template <bool kL2>
void adagrad(const UpdateParams& p, const RowStep& r) {
  for_padded(r.padded, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = decayed<kL2>(d, p, r, i);
    const auto m = hn::Add(hn::LoadU(d, r.m + i), hn::Mul(g, g));
    const auto kept = hn::Mul(hn::Set(d, p.keep), hn::LoadU(d, r.w + i));
    const auto move =
        hn::Div(hn::Mul(hn::Set(d, p.learning_rate), g), hn::Add(hn::Sqrt(m), hn::Set(d, p.eps)));
    hn::StoreU(m, d, r.new_m + i);
    hn::StoreU(hn::Sub(kept, move), d, r.new_w + i);
  });
}

/// Returns the new statistic.
inline float row_wise_adagrad(const UpdateParams& p, const RowStep& r, float old, float mean) {
  const float sum = old + mean;
  const float rate = p.learning_rate / (std::sqrt(sum) + p.eps);
  const float keep = p.decay == WeightDecay::kL2 ? 1.0F - rate * p.weight_decay : p.keep;
  for_padded(r.padded, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto kept = hn::Mul(hn::Set(d, keep), hn::LoadU(d, r.w + i));
    const auto move = hn::Mul(hn::Set(d, rate), hn::LoadU(d, r.g + i));
    hn::StoreU(hn::Sub(kept, move), d, r.new_w + i);
  });
  return sum;
}

/// The new first moment, stored, and the row's move without the second: (m·q1, w - lr·(x + wd·w)).
template <bool kL2, class D>
HWY_INLINE hn::Vec<D> first_moment(D d, const UpdateParams& p, const RowStep& r, std::int64_t i) {
  const auto m = hn::Add(hn::Mul(hn::Set(d, p.beta1), hn::LoadU(d, r.m + i)),
                         hn::Mul(hn::Set(d, p.one_minus_beta1), decayed<kL2>(d, p, r, i)));
  hn::StoreU(m, d, r.new_m + i);
  return hn::Mul(m, hn::Set(d, p.correction1));
}

template <class D>
HWY_INLINE void adam_move(
    D d, const UpdateParams& p, const RowStep& r, std::int64_t i, hn::Vec<D> direction) {
  const auto w = hn::LoadU(d, r.w + i);
  if (p.decay == WeightDecay::kDecoupled) {
    direction = hn::Add(direction, hn::Mul(hn::Set(d, p.weight_decay), w));
  }
  hn::StoreU(hn::Sub(w, hn::Mul(hn::Set(d, p.learning_rate), direction)), d, r.new_w + i);
}

template <bool kL2>
void adam(const UpdateParams& p, const RowStep& r) {
  for_padded(r.padded, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = decayed<kL2>(d, p, r, i);
    const auto first = first_moment<kL2>(d, p, r, i);
    const auto v = hn::Add(hn::Mul(hn::Set(d, p.beta2), hn::LoadU(d, r.v + i)),
                           hn::Mul(hn::Set(d, p.one_minus_beta2), hn::Mul(g, g)));
    hn::StoreU(v, d, r.new_v + i);
    const auto root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, p.correction2))), hn::Set(d, p.eps));
    adam_move(d, p, r, i, hn::Div(first, root));
  });
}

/// Returns the new second moment.
template <bool kL2>
float row_wise_adam(const UpdateParams& p, const RowStep& r, float old, float mean) {
  const float v = p.beta2 * old + p.one_minus_beta2 * mean;
  const float root = std::sqrt(v * p.correction2) + p.eps;
  for_padded(r.padded, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto first = first_moment<kL2>(d, p, r, i);
    adam_move(d, p, r, i, hn::Div(first, hn::Set(d, root)));
  });
  return v;
}

/// Words for columns [0, padded) of a row: four columns per Philox call, one call per lane.
inline void random_words(const RowTable& table,
                         const UpdateParams& p,
                         std::int64_t row,
                         std::int64_t padded,
                         std::uint32_t* out) {
  const hn::ScalableTag<std::uint32_t> d;
  const hn::RepartitionToWide<decltype(d)> wide;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto global_row = static_cast<std::uint64_t>(table.first_row + row);
  const std::uint64_t high = (p.step << 20) + static_cast<std::uint64_t>(table.first_col / 4);
  const auto multiplier0 = hn::BitCast(d, hn::Set(wide, 0xD2511F53U));
  const auto multiplier1 = hn::BitCast(d, hn::Set(wide, 0xCD9E8D57U));
  for (std::int64_t col = 0; col < padded; col += 4 * lanes) {
    auto x0 = hn::Set(d, static_cast<std::uint32_t>(global_row));
    auto x1 = hn::Set(d, static_cast<std::uint32_t>(global_row >> 32));
    // The lowest 20 bits count the fours of columns, so adding a lane's number carries nothing.
    auto x2 = hn::Iota(d, static_cast<std::uint32_t>(high) + static_cast<std::uint32_t>(col / 4));
    auto x3 = hn::Set(d, static_cast<std::uint32_t>(high >> 32));
    auto key0 = static_cast<std::uint32_t>(p.random_key);
    auto key1 = static_cast<std::uint32_t>(p.random_key >> 32);
    for (int round = 0; round < 10; ++round) {
      const auto even0 = hn::MulEven(x0, multiplier0);
      const auto odd0 =
          hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x0))), multiplier0);
      const auto even1 = hn::MulEven(x2, multiplier1);
      const auto odd1 =
          hn::MulEven(hn::BitCast(d, hn::ShiftRight<32>(hn::BitCast(wide, x2))), multiplier1);
      const auto low0 = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd0)), hn::BitCast(d, even0));
      const auto high0 =
          hn::OddEven(hn::BitCast(d, odd0), hn::BitCast(d, hn::ShiftRight<32>(even0)));
      const auto low1 = hn::OddEven(hn::BitCast(d, hn::ShiftLeft<32>(odd1)), hn::BitCast(d, even1));
      const auto high1 =
          hn::OddEven(hn::BitCast(d, odd1), hn::BitCast(d, hn::ShiftRight<32>(even1)));
      x0 = hn::Xor(hn::Xor(high1, x1), hn::Set(d, key0));
      x2 = hn::Xor(hn::Xor(high0, x3), hn::Set(d, key1));
      x1 = low1;
      x3 = low0;
      key0 += 0x9E3779B9U;
      key1 += 0xBB67AE85U;
    }
    hn::StoreInterleaved4(x0, x1, x2, x3, d, out + col);
  }
}

/// bf16: adding 16 random bits carries into the kept half as often as the dropped half says.
template <class DU>
HWY_INLINE hn::Vec<DU> round_bf16(DU d, hn::Vec<DU> magnitude, hn::Vec<DU> random) {
  const auto sum = hn::Add(magnitude, hn::And(random, hn::Set(d, 0xFFFFU)));
  return hn::Min(hn::ShiftRight<16>(sum), hn::Set(d, 0x7F7FU));
}

/// fp16, as to_float16_stochastic(): 13 bits dropped of a normal result, more of a subnormal one.
template <class DU>
HWY_INLINE hn::Vec<DU> round_fp16(DU d, hn::Vec<DU> magnitude, hn::Vec<DU> random) {
  const auto smallest_normal = hn::Set(d, 0x38800000U);
  const auto rebias = hn::Set(d, 0x38000000U);
  const auto normal =
      hn::Min(hn::ShiftRight<13>(hn::Add(hn::Sub(hn::Max(magnitude, smallest_normal), rebias),
                                         hn::And(random, hn::Set(d, 0x1FFFU)))),
              hn::Set(d, 0x7BFFU));
  // Below: value = mantissa / 2^shift units of 2^-24, shift = 126 - exponent, at least 14. A float
  // below its own smallest normal number gives 0 as exactly as anything can be seen here.
  const auto exponent = hn::Min(hn::ShiftRight<23>(magnitude), hn::Set(d, 112U));
  const auto shift = hn::Sub(hn::Set(d, 126U), exponent);
  const auto has_hidden_bit = hn::Gt(exponent, hn::Zero(d));
  const auto mantissa = hn::Or(hn::And(magnitude, hn::Set(d, 0x7FFFFFU)),
                               hn::IfThenElseZero(has_hidden_bit, hn::Set(d, 0x800000U)));
  const auto over = hn::Sub(hn::Max(shift, hn::Set(d, 32U)), hn::Set(d, 32U));
  const auto cut = hn::Shr(mantissa, hn::Min(over, hn::Set(d, 31U)));
  const auto few = hn::Min(shift, hn::Set(d, 31U));
  const auto mask = hn::Sub(hn::Shl(hn::Set(d, 1U), few), hn::Set(d, 1U));
  const auto shifted = hn::Shr(hn::Add(mantissa, hn::And(random, mask)), few);
  // With 32 bits dropped the result is the carry out of the word.
  const auto carry = hn::IfThenElseZero(hn::Lt(hn::Add(cut, random), cut), hn::Set(d, 1U));
  const auto subnormal = hn::IfThenElse(hn::Gt(shift, hn::Set(d, 31U)), carry, shifted);
  return hn::IfThenElse(hn::Lt(magnitude, smallest_normal), subnormal, normal);
}

template <bool kBf16>
void round_row(const float* values,
               const std::uint32_t* random,
               std::int64_t padded,
               std::uint16_t* out) {
  for_padded(padded, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto bits = hn::BitCast(du, hn::LoadU(d, values + i));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFU));
    const auto sign = hn::ShiftLeft<15>(hn::ShiftRight<31>(bits));
    const auto words = hn::LoadU(du, random + i);
    const auto rounded =
        kBf16 ? round_bf16(du, magnitude, words) : round_fp16(du, magnitude, words);
    const auto half = hn::BitCast(di, hn::Or(rounded, sign));
    hn::StoreU(hn::DemoteTo(d16, half), d16, out + i);
  });
}

/// Writes finite padded fp32 values as the row.
inline void write_row(const SparseUpdate& update,
                      std::int64_t row,
                      const float* values,
                      const RowScratch& scratch) {
  const RowTable& table = update.table;
  char* const at = static_cast<char*>(table.weights) + row * table.weight_stride;
  if (table.dtype == DType::kFloat32) {
    std::memcpy(at, values, static_cast<std::size_t>(table.cols) * sizeof(float));
    return;
  }
  if (table.dtype == DType::kSplitBFloat16) {
    write_halves(table, row, values);
    return;
  }
  random_words(table, update.params, row, scratch.padded, scratch.random);
  if (table.dtype == DType::kBFloat16) {
    round_row<true>(values, scratch.random, scratch.padded, scratch.half);
  } else {
    round_row<false>(values, scratch.random, scratch.padded, scratch.half);
  }
  std::memcpy(at, scratch.half, static_cast<std::size_t>(table.cols) * 2);
}

inline void scale_row(float* values, std::int64_t padded, float factor) {
  for_padded(padded, [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  });
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
