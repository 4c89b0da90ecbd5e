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

#include "weft/kernels/cpu/lanes-inl.h"
#include "weft/kernels/cpu/random_words-inl.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/row_statistics.h"
#include "weft/kernels/sparse_update.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// Rows in hand at a time. A row's rate takes a chain of some 100 cycles (sum of squares, root,
/// quotient) of which a core's window holds one or two; made for eight rows side by side they
/// overlap, and root and quotient are one instruction each.
inline constexpr std::int64_t kBatch = 8;

/// Calls of Philox for a batch of rows of so many each, and spare ones.
constexpr std::int64_t batch_calls(std::int64_t of_row) {
  return kBatch * of_row + kSpareCalls;
}

/// Scratch of a batch; every array is padded to whole blocks.
struct RowScratch {
  std::int64_t padded;
  float* rows;       ///< [kBatch] rows as fp32, where they cannot be used in place
  float* gradients;  ///< [kBatch] sums and copies, likewise
  float* state;      ///< copies of m and v, likewise
  float* new_row;
  float* new_state;      ///< m, then v
  float* blocks;         ///< sums of squares
  std::uint16_t* half;   ///< a row in 16 bits
  std::uint32_t* words;  ///< random ones of rows (RowWords)
  std::uint64_t* calls;  ///< [2][batch_calls()] counters for them
  float* slots;          ///< partial sums, one per depth of the tree of parts but the first
};

/// Rows in hand. The last four are of row-wise rules.
struct Batch {
  std::int64_t slot[kBatch];
  const float* g[kBatch];
  const void* w[kBatch];  ///< 16 bits where Element is known to have them, else fp32
  alignas(64) float mean_square[kBatch];
  alignas(64) float state[kBatch];  ///< old, then new
  alignas(64) float rate[kBatch];   ///< row_wise_adagrad: μ; row_wise_adam: √(v·q2) + eps
  alignas(64) float keep[kBatch];   ///< k
};

/// The type of a row's elements where it is looked up for each row: it is the same for all rows of
/// a task, so the choice is guessed, and there is one code for all types.
struct AnyElement {
  static DType of(const RowTable& table) { return table.dtype; }

  static constexpr bool kIsBf16 = false;
  static constexpr bool kIsFp16 = false;
};

/// A type of elements that the compiler knows: the types and rules that most jobs use have code of
/// their own.
template <DType kType>
struct KnownElement {
  static constexpr DType of(const RowTable& /*table*/) { return kType; }

  static constexpr bool kIsBf16 = kType == DType::kBFloat16;
  static constexpr bool kIsFp16 = kType == DType::kFloat16;
};

/// Says whether usual widths have code for each type of elements as well: with the rules that most
/// jobs use. It saves choices and broadcasts for each row.
constexpr bool has_code_per_type(SparseOptimizerKind rule) {
  return rule == SparseOptimizerKind::kSgd || rule == SparseOptimizerKind::kRowWiseAdagrad;
}

/// The columns of a row: kCols, known to the compiler and whole blocks, or for 0 any number. The
/// usual widths so have no counters and no ends.
template <int kCols>
class Columns {
 public:
  explicit Columns(std::int64_t /*cols*/) {}

  static constexpr std::int64_t count() { return kCols; }

  static constexpr std::int64_t padded() { return kCols; }
};

template <>
class Columns<0> {
 public:
  explicit Columns(std::int64_t cols)
      : count_(cols), padded_(statistic_blocks(cols) * kStatisticBlock) {}

  [[nodiscard]] std::int64_t count() const { return count_; }

  [[nodiscard]] std::int64_t padded() const { return padded_; }

 private:
  std::int64_t count_;
  std::int64_t padded_;
};

/// Calls body(d, i) for vectors that cover [0, padded).
template <int kCols, class Body>
HWY_INLINE void for_padded(Columns<kCols> columns, const Body& body) {
  const hn::ScalableTag<float> d;
  constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(d));
  if constexpr (kCols > 0) {
    HWY_UNROLL(32)
    for (std::int64_t i = 0; i < kCols; i += kStep) {
      body(d, i);
    }
  } else {
    for (std::int64_t i = 0; i < columns.padded(); i += kStep) {
      body(d, i);
    }
  }
}

/// Fills what is behind the last column.
template <int kCols>
HWY_INLINE void fill_tail(Columns<kCols> columns, float* values, float with) {
  for (std::int64_t i = columns.count(); i < columns.padded(); ++i) {
    values[i] = with;
  }
}

template <int kCols>
HWY_INLINE void copy_floats(Columns<kCols> columns, const float* from, float* to) {
  const auto copy = [&](auto d, std::int64_t i)
                        HWY_ATTR { hn::StoreU(hn::LoadU(d, from + i), d, to + i); };
  if constexpr (kCols > 0) {
    for_padded(columns, copy);
  } else {
    for_columns(0, columns.count(), copy);
  }
}

/// `values` if they are whole blocks, else a copy padded with `with`.
template <int kCols>
HWY_INLINE const float* pad(Columns<kCols> columns,
                            const float* values,
                            float* copy,
                            float with = 0.0F) {
  if (columns.count() == columns.padded()) {
    return values;
  }
  copy_floats(columns, values, copy);
  fill_tail(columns, copy, with);
  return copy;
}

/// Calls body(d, i) for vectors that cover [0, count) and nothing behind it.
template <int kCols, class Body>
HWY_INLINE void for_count(Columns<kCols> columns, const Body& body) {
  if constexpr (kCols > 0) {
    for_padded(columns, body);
  } else {
    for_columns(0, columns.count(), body);
  }
}

template <class Row, int kCols>
HWY_INLINE void widen(Columns<kCols> columns, const typename Row::Element* from, float* to) {
  for_padded(columns, [&](auto d, std::int64_t i)
                          HWY_ATTR { hn::StoreU(Row::load(d, from + i), d, to + i); });
}

/// The fp32 words of a row in two halves.
template <int kCols>
HWY_INLINE const float* join_row(Columns<kCols> columns,
                                 const RowTable& table,
                                 std::int64_t slot,
                                 float* to) {
  const auto* const high = reinterpret_cast<const std::uint16_t*>(
      static_cast<const char*>(table.weights) + slot * table.weight_stride);
  const auto* const low = reinterpret_cast<const std::int16_t*>(
      static_cast<const char*>(table.low) + slot * table.low_stride);
  for_count(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::RebindToSigned<decltype(d)> di;
    const hn::Rebind<std::uint16_t, decltype(d)> du16;
    const hn::Rebind<std::int16_t, decltype(d)> di16;
    const auto top = hn::ShiftLeft<16>(hn::PromoteTo(du, hn::LoadU(du16, high + i)));
    const auto rest = hn::BitCast(du, hn::PromoteTo(di, hn::LoadU(di16, low + i)));
    hn::StoreU(hn::BitCast(d, hn::Add(top, rest)), d, to + i);
  });
  fill_tail(columns, to, 0.0F);
  return to;
}

/// Writes fp32 words as a row in two halves.
template <int kCols>
HWY_INLINE void write_halves(Columns<kCols> columns,
                             const RowTable& table,
                             std::int64_t slot,
                             const float* values) {
  auto* const high = reinterpret_cast<std::uint16_t*>(static_cast<char*>(table.weights) +
                                                      slot * table.weight_stride);
  auto* const low =
      reinterpret_cast<std::uint16_t*>(static_cast<char*>(table.low) + slot * table.low_stride);
  for_count(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto word = hn::BitCast(du, hn::LoadU(d, values + i));
    const auto top = hn::ShiftRight<16>(hn::Add(word, hn::Set(du, 0x8000U)));
    hn::StoreU(hn::TruncateTo(d16, top), d16, high + i);
    hn::StoreU(hn::TruncateTo(d16, word), d16, low + i);
  });
}

/// A row of 16-bit elements as padded fp32.
template <class Element, int kCols>
HWY_INLINE const float* widen_row(Columns<kCols> columns,
                                  const RowTable& table,
                                  const void* at,
                                  const RowScratch& scratch,
                                  float* to) {
  const auto* half = static_cast<const std::uint16_t*>(at);
  if (columns.count() != columns.padded()) {
    std::memset(scratch.half, 0, static_cast<std::size_t>(columns.padded()) * 2);
    std::memcpy(scratch.half, at, static_cast<std::size_t>(columns.count()) * 2);
    half = scratch.half;
  }
  if (Element::of(table) == DType::kBFloat16) {
    widen<Bf16Row>(columns, half, to);
  } else {
    widen<Fp16Row>(columns, half, to);
  }
  return to;
}

/// The row as padded fp32: where it lies, or in place i of the scratch.
template <class Element, int kCols>
HWY_INLINE const float* read_row(Columns<kCols> columns,
                                 const RowTable& table,
                                 std::int64_t slot,
                                 const RowScratch& scratch,
                                 std::int64_t i) {
  const char* const at = static_cast<const char*>(table.weights) + slot * table.weight_stride;
  float* const to = scratch.rows + i * columns.padded();
  if (Element::of(table) == DType::kFloat32) {
    return pad(columns, reinterpret_cast<const float*>(at), to);
  }
  return Element::of(table) == DType::kSplitBFloat16
             ? join_row(columns, table, slot, to)
             : widen_row<Element>(columns, table, at, scratch, to);
}

using Quarter = hn::FixedTag<float, 4>;
using QuarterVec = hn::Vec<Quarter>;

/// Of 16 lanes: lane i + i+8, then i+4.
HWY_INLINE QuarterVec quarter_sum(Lanes x) {
  HWY_UNROLL(2)
  for (std::size_t half = kVectors / 2; half > 0; half /= 2) {
    HWY_UNROLL(2)
    for (std::size_t i = 0; i < half; ++i) {
      x.v[i] = hn::Add(x.v[i], x.v[i + half]);
    }
  }
#if HWY_MAX_BYTES >= 64
  const hn::Half<FloatTag> half;
  const hn::Half<decltype(half)> quarter;
  const auto by8 = hn::Add(hn::LowerHalf(half, x.v[0]), hn::UpperHalf(half, x.v[0]));
  return hn::Add(hn::LowerHalf(quarter, by8), hn::UpperHalf(quarter, by8));
#elif HWY_MAX_BYTES == 32
  const hn::Half<FloatTag> half;
  return hn::Add(hn::LowerHalf(half, x.v[0]), hn::UpperHalf(half, x.v[0]));
#else
  return x.v[0];
#endif
}

/// The rest of a block's sum: lane i + i+2, then i+1.
HWY_INLINE float sum_quarter(QuarterVec by4) {
  const auto by2 = hn::Add(by4, hn::Shuffle1032(by4));
  return hn::GetLane(hn::Add(by2, hn::Shuffle2301(by2)));
}

/// The squares of block `i / 16` of g + decay·w; w is not read without kL2.
template <bool kL2>
HWY_INLINE QuarterVec block_squares(const float* g, const float* w, float decay, std::int64_t i) {
  const FloatTag d;
  Lanes x = load_lanes(g + i);
  HWY_UNROLL(4)
  for (std::size_t v = 0; v < kVectors; ++v) {
    if constexpr (kL2) {
      const auto weight = hn::LoadU(d, w + i + static_cast<std::int64_t>(v * kWidth));
      x.v[v] = hn::Add(x.v[v], hn::Mul(hn::Set(d, decay), weight));
    }
    x.v[v] = hn::Mul(x.v[v], x.v[v]);
  }
  return quarter_sum(x);
}

/// Sums of squares of g + decay·w per block.
template <bool kL2>
void squares(const float* g, const float* w, float decay, std::int64_t padded, float* out) {
  for (std::int64_t i = 0; i < padded; i += kStatisticBlock) {
    out[i / kStatisticBlock] = sum_quarter(block_squares<kL2>(g, w, decay, i));
  }
}

/// The sums of four blocks, added as (0 + 1) + (2 + 3). The lanes of the blocks are brought side by
/// side, so that one addition serves all four.
HWY_INLINE float sum_four(QuarterVec q0, QuarterVec q1, QuarterVec q2, QuarterVec q3) {
  const Quarter d;
  const auto by2_01 = hn::Add(hn::ConcatLowerLower(d, q1, q0), hn::ConcatUpperUpper(d, q1, q0));
  const auto by2_23 = hn::Add(hn::ConcatLowerLower(d, q3, q2), hn::ConcatUpperUpper(d, q3, q2));
  const auto blocks = hn::Add(hn::ConcatEven(d, by2_23, by2_01), hn::ConcatOdd(d, by2_23, by2_01));
  const auto pairs = hn::Add(blocks, hn::Shuffle2301(blocks));
  return hn::GetLane(hn::Add(pairs, hn::Shuffle1032(pairs)));
}

/// Sums of up to four blocks; a missing one is a zero, which changes no sum of squares.
template <bool kL2>
HWY_INLINE float square_sum_of_four(
    const float* g, const float* w, float decay, std::int64_t begin, std::int64_t end) {
  const auto at = [&](std::int64_t i) HWY_ATTR {
    return i < end ? block_squares<kL2>(g, w, decay, i) : hn::Zero(Quarter());
  };
  return sum_four(at(begin), at(begin + 16), at(begin + 32), at(begin + 48));
}

/// block_tree_sum() of the squares. Four blocks are a whole subtree; `sums` has room for a number
/// per subtree.
template <bool kL2, int kCols>
HWY_INLINE float square_sum(
    Columns<kCols> columns, const float* g, const float* w, float decay, float* sums) {
  if (columns.padded() == kStatisticBlock) {
    return sum_quarter(block_squares<kL2>(g, w, decay, 0));
  }
  std::int64_t count = 0;
  if constexpr (kCols > 0) {
    HWY_UNROLL(8)
    for (std::int64_t i = 0; i < kCols; i += 4 * kStatisticBlock) {
      sums[count++] = square_sum_of_four<kL2>(g, w, decay, i, kCols);
    }
  } else {
    for (std::int64_t i = 0; i < columns.padded(); i += 4 * kStatisticBlock) {
      sums[count++] = square_sum_of_four<kL2>(g, w, decay, i, columns.padded());
    }
  }
  // The tree over blocks joins neighbours, level by level; an odd one waits.
  for (; count > 1; count = (count + 1) / 2) {
    for (std::int64_t i = 0; 2 * i < count; ++i) {
      sums[i] = 2 * i + 1 < count ? sums[2 * i] + sums[2 * i + 1] : sums[2 * i];
    }
  }
  return sums[0];
}

constexpr std::int32_t kInfinity = 0x7F800000;

/// The largest magnitude seen, as bits: above those of all finite numbers where one was not. One
/// AND and one maximum per vector.
class Magnitude {
 public:
  HWY_INLINE Magnitude() : largest_(hn::Zero(Tag())) {}

  template <class D>
  HWY_INLINE void see(D /*d*/, hn::Vec<D> values) {
    const Tag d;
    largest_ = hn::Max(largest_, hn::And(hn::BitCast(d, values), hn::Set(d, 0x7FFFFFFF)));
  }

  [[nodiscard]] HWY_INLINE bool is_below(std::int32_t limit) const {
    const Tag d;
    return hn::AllTrue(d, hn::Lt(largest_, hn::Set(d, limit)));
  }

 private:
  using Tag = hn::ScalableTag<std::int32_t>;
  hn::Vec<Tag> largest_;
};

/// Magnitudes that can be written as a row are below this.
inline std::int32_t weight_limit(DType dtype) {
  return dtype == DType::kSplitBFloat16 ? static_cast<std::int32_t>(kSplitLimit) : kInfinity;
}

/// A row before and after, all padded. New values are seen by the magnitudes.
struct RowStep {
  const float* g;
  const void* w;   ///< as in Batch; row_columns() reads it
  const float* m;  ///< elementwise state
  const float* v;
  float rate;  ///< of row-wise rules, as in Batch
  float keep;  ///< likewise
  float* new_w;
  float* new_m;
  float* new_v;
  Magnitude weights;
  Magnitude state;
};

/// Columns of a row from i on, as fp32: made of 16 bits where the compiler knows their type.
template <class Element, class D>
HWY_INLINE hn::Vec<D> row_columns(D d, const RowStep& r, std::int64_t i) {
  if constexpr (Element::kIsBf16) {
    return Bf16Row::load(d, static_cast<const std::uint16_t*>(r.w) + i);
  } else if constexpr (Element::kIsFp16) {
    return Fp16Row::load(d, static_cast<const std::uint16_t*>(r.w) + i);
  } else {
    return hn::LoadU(d, static_cast<const float*>(r.w) + i);
  }
}

template <bool kL2, class D>
HWY_INLINE hn::Vec<D> decayed(D d, const UpdateParams& p, const RowStep& r, std::int64_t i) {
  auto g = hn::LoadU(d, r.g + i);
  if constexpr (kL2) {
    g = hn::Add(g, hn::Mul(hn::Set(d, p.weight_decay), row_columns<AnyElement>(d, r, i)));
  }
  return g;
}

template <class D>
HWY_INLINE void put_weights(D d, RowStep& r, std::int64_t i, hn::Vec<D> values) {
  r.weights.see(d, values);
  hn::StoreU(values, d, r.new_w + i);
}

template <class D>
HWY_INLINE void put_state(D d, RowStep& r, std::int64_t i, hn::Vec<D> values, float* to) {
  r.state.see(d, values);
  hn::StoreU(values, d, to + i);
}

template <bool kL2, class Element, int kCols>
HWY_INLINE void sgd(Columns<kCols> columns, const UpdateParams& p, RowStep& r) {
  for_padded(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto kept = hn::Mul(hn::Set(d, p.keep), row_columns<Element>(d, r, i));
    const auto move = hn::Mul(hn::Set(d, p.learning_rate), decayed<kL2>(d, p, r, i));
    put_weights(d, r, i, hn::Sub(kept, move));
  });
}

template <bool kL2, int kCols>
HWY_INLINE void adagrad(Columns<kCols> columns, const UpdateParams& p, RowStep& r) {
  for_padded(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = decayed<kL2>(d, p, r, i);
    const auto sum = hn::Add(hn::LoadU(d, r.m + i), hn::Mul(g, g));
    const auto kept = hn::Mul(hn::Set(d, p.keep), row_columns<AnyElement>(d, r, i));
    const auto move =
        hn::Div(hn::Mul(hn::Set(d, p.learning_rate), g), hn::Add(hn::Sqrt(sum), hn::Set(d, p.eps)));
    put_state(d, r, i, sum, r.new_m);
    put_weights(d, r, i, hn::Sub(kept, move));
  });
}

template <class Element, int kCols>
HWY_INLINE void row_wise_adagrad(Columns<kCols> columns, RowStep& r) {
  for_padded(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto kept = hn::Mul(hn::Set(d, r.keep), row_columns<Element>(d, r, i));
    const auto move = hn::Mul(hn::Set(d, r.rate), hn::LoadU(d, r.g + i));
    put_weights(d, r, i, hn::Sub(kept, move));
  });
}

/// The new first moment, stored, times q1.
template <bool kL2, class D>
HWY_INLINE hn::Vec<D> first_moment(D d, const UpdateParams& p, RowStep& r, std::int64_t i) {
  const auto m = hn::Add(hn::Mul(hn::Set(d, p.beta1), hn::LoadU(d, r.m + i)),
                         hn::Mul(hn::Set(d, p.one_minus_beta1), decayed<kL2>(d, p, r, i)));
  put_state(d, r, i, m, r.new_m);
  return hn::Mul(m, hn::Set(d, p.correction1));
}

/// w - lr·(direction + [decoupled: wd·w]).
template <class D>
HWY_INLINE void adam_move(
    D d, const UpdateParams& p, RowStep& r, std::int64_t i, hn::Vec<D> direction) {
  const auto w = row_columns<AnyElement>(d, r, i);
  if (p.decay == WeightDecay::kDecoupled) {
    direction = hn::Add(direction, hn::Mul(hn::Set(d, p.weight_decay), w));
  }
  put_weights(d, r, i, hn::Sub(w, hn::Mul(hn::Set(d, p.learning_rate), direction)));
}

template <bool kL2, int kCols>
HWY_INLINE void adam(Columns<kCols> columns, const UpdateParams& p, RowStep& r) {
  for_padded(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto g = decayed<kL2>(d, p, r, i);
    const auto first = first_moment<kL2>(d, p, r, i);
    const auto v = hn::Add(hn::Mul(hn::Set(d, p.beta2), hn::LoadU(d, r.v + i)),
                           hn::Mul(hn::Set(d, p.one_minus_beta2), hn::Mul(g, g)));
    put_state(d, r, i, v, r.new_v);
    const auto root = hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, p.correction2))), hn::Set(d, p.eps));
    adam_move(d, p, r, i, hn::Div(first, root));
  });
}

template <bool kL2, int kCols>
HWY_INLINE void row_wise_adam(Columns<kCols> columns, const UpdateParams& p, RowStep& r) {
  for_padded(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const auto first = first_moment<kL2>(d, p, r, i);
    adam_move(d, p, r, i, hn::Div(first, hn::Set(d, r.rate)));
  });
}

/// New state, rate and k of row-wise rules from old state and mean of squares.
template <SparseOptimizerKind kRule, bool kL2>
HWY_INLINE void make_rates(const UpdateParams& p, Batch& batch) {
  const hn::CappedTag<float, kBatch> d;
  constexpr auto kStep = static_cast<std::int64_t>(hn::MaxLanes(d));
  for (std::int64_t i = 0; i < kBatch; i += kStep) {
    const auto mean = hn::Load(d, batch.mean_square + i);
    const auto old = hn::Load(d, batch.state + i);
    const auto eps = hn::Set(d, p.eps);
    if constexpr (kRule == SparseOptimizerKind::kRowWiseAdagrad) {
      const auto sum = hn::Add(old, mean);
      const auto rate = hn::Div(hn::Set(d, p.learning_rate), hn::Add(hn::Sqrt(sum), eps));
      const auto decay = hn::Mul(rate, hn::Set(d, p.weight_decay));
      hn::Store(sum, d, batch.state + i);
      hn::Store(rate, d, batch.rate + i);
      hn::Store(kL2 ? hn::Sub(hn::Set(d, 1.0F), decay) : hn::Set(d, p.keep), d, batch.keep + i);
    } else {
      const auto v =
          hn::Add(hn::Mul(hn::Set(d, p.beta2), old), hn::Mul(hn::Set(d, p.one_minus_beta2), mean));
      hn::Store(v, d, batch.state + i);
      hn::Store(hn::Add(hn::Sqrt(hn::Mul(v, hn::Set(d, p.correction2))), eps), d, batch.rate + i);
    }
  }
}

template <SparseOptimizerKind kRule, bool kL2, class Element, int kCols>
HWY_INLINE void apply_rule(Columns<kCols> columns, const UpdateParams& p, RowStep& r) {
  static_assert(!(Element::kIsBf16 || Element::kIsFp16) || (has_code_per_type(kRule) && !kL2),
                "other rules and L2 decay read rows of fp32");
  if constexpr (kRule == SparseOptimizerKind::kSgd) {
    sgd<kL2, Element>(columns, p, r);
  } else if constexpr (kRule == SparseOptimizerKind::kAdagrad) {
    adagrad<kL2>(columns, p, r);
  } else if constexpr (kRule == SparseOptimizerKind::kRowWiseAdagrad) {
    row_wise_adagrad<Element>(columns, r);
  } else if constexpr (kRule == SparseOptimizerKind::kAdam) {
    adam<kL2>(columns, p, r);
  } else {
    row_wise_adam<kL2>(columns, p, r);
  }
}

inline void scale_row(float* values, std::int64_t padded, float factor) {
  for_padded(Columns<0>(padded), [&](auto d, std::int64_t i) HWY_ATTR {
    hn::StoreU(hn::Mul(hn::LoadU(d, values + i), hn::Set(d, factor)), d, values + i);
  });
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
