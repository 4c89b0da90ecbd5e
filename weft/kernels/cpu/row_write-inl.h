// Private to kernels/cpu: a row's new values into its memory, rounded stochastically where its
// elements have 16 bits. Included once per Highway target.

#if defined(WEFT_KERNELS_CPU_ROW_WRITE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_ROW_WRITE_INL_H_
#undef WEFT_KERNELS_CPU_ROW_WRITE_INL_H_
#else
#define WEFT_KERNELS_CPU_ROW_WRITE_INL_H_
#endif

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include <hwy/highway.h>

#include "weft/base/parts.h"
#include "weft/base/row_draws.h"
#include "weft/kernels/cpu/random_words-inl.h"
#include "weft/kernels/cpu/row_update-inl.h"
#include "weft/kernels/sparse_update.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// The random bits of rows in hand (weft/base/row_draws.h), made for all of them in one pass: a row
/// of 64 columns is one vector of calls, which alone would wait for its own rounds.
template <class Element, int kCols>
class RowWords {
 public:
  RowWords(Columns<kCols> columns, const SparseUpdate& update, const RowScratch& scratch)
      : columns_(columns),
        update_(update),
        keys_(update.params.draws.key),
        words_(scratch.words),
        low_(scratch.calls),
        high_(low_ + batch_calls(calls())) {
    if (!is_drawn()) {
      return;
    }
    std::fill_n(low_, batch_calls(calls()), std::uint64_t{0});
    const std::uint64_t first = first_counter(RowDraws::kColumns);
    std::int64_t call = 0;  // of a row
    for (std::int64_t i = 0; i < batch_calls(calls()); ++i) {
      high_[i] = first + static_cast<std::uint64_t>(call);
      call = call + 1 == calls() ? 0 : call + 1;
    }
  }

  /// Takes the numbers of unique rows [rows), kBatch at most, for which draw() is called next. A
  /// vector that reads numbers just written one by one waits until the writes have reached the
  /// cache, so other work is done in between.
  HWY_INLINE void take(Range rows) {
    rows_ = rows;
    if (is_drawn() && update_.params.draws.rule == DrawRule::kHalfWord) {
      for (std::int64_t i = 0; i < rows.size(); ++i) {
        std::fill_n(low_ + i * calls(), calls(), whole_row(i));
      }
    }
  }

  /// Draws for the rows taken; not at all where rows are not rounded.
  HWY_INLINE void draw() {
    if (is_drawn()) {
      make();
    }
  }

  /// The words of the i-th of them: one for each padded column.
  [[nodiscard]] const std::uint32_t* of(std::int64_t i) const {
    return words_ + i * columns_.padded();
  }

 private:
  [[nodiscard]] HWY_INLINE bool is_drawn() const {
    const DType type = Element::of(update_.table);
    return type == DType::kFloat16 || type == DType::kBFloat16;
  }

  /// Returns how many calls a row takes.
  [[nodiscard]] HWY_INLINE std::int64_t calls() const {
    return columns_.padded() / RowDraws::kColumns;
  }

  /// The half of the counter that the row's first column has where a call is for so many columns.
  [[nodiscard]] std::uint64_t first_counter(std::int64_t columns) const {
    return (update_.params.step << 20) +
           static_cast<std::uint64_t>(update_.table.first_col / columns);
  }

  /// The i-th of the rows taken, as a number of the whole table.
  [[nodiscard]] std::uint64_t whole_row(std::int64_t i) const {
    return static_cast<std::uint64_t>(update_.table.whole_row(update_.runs.rows[rows_.begin + i]));
  }

  HWY_NOINLINE void make() {
    if (update_.params.draws.rule == DrawRule::kWord) {
      for (std::int64_t i = 0; i < rows_.size(); ++i) {
        random_words(keys_, whole_row(i), first_counter(4), columns_.padded(),
                     words_ + i * columns_.padded());
      }
      return;
    }
    half_words(keys_, low_, high_, rows_.size() * calls(), words_);
  }

  const Columns<kCols> columns_;
  const SparseUpdate& update_;
  RoundKeys keys_;
  std::uint32_t* words_;
  std::uint64_t* low_;
  std::uint64_t* high_;
  Range rows_;
};

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
  const auto is_small = hn::Lt(magnitude, smallest_normal);
  if (hn::AllFalse(d, is_small)) {  // the rest is twice as much work as what is done
    return normal;
  }
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
  return hn::IfThenElse(is_small, subnormal, normal);
}

template <bool kBf16, int kCols>
HWY_INLINE void round_row(Columns<kCols> columns,
                          const float* values,
                          const std::uint32_t* random,
                          std::uint16_t* out) {
  for_padded(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    const hn::RebindToUnsigned<decltype(d)> du;
    const hn::Rebind<std::uint16_t, decltype(d)> d16;
    const auto bits = hn::BitCast(du, hn::LoadU(d, values + i));
    const auto magnitude = hn::And(bits, hn::Set(du, 0x7FFFFFFFU));
    const auto sign = hn::ShiftLeft<15>(hn::ShiftRight<31>(bits));
    const auto words = hn::LoadU(du, random + i);
    const auto rounded =
        kBf16 ? round_bf16(du, magnitude, words) : round_fp16(du, magnitude, words);
    hn::StoreU(hn::TruncateTo(d16, hn::Or(rounded, sign)), d16, out + i);
  });
}

/// Rounds values stochastically to a row of 16-bit elements.
template <class Element, int kCols>
HWY_INLINE void write_rounded(Columns<kCols> columns,
                              const RowTable& table,
                              const std::uint32_t* words,
                              void* at,
                              const float* values,
                              const RowScratch& scratch) {
  auto* const half = kCols > 0 ? static_cast<std::uint16_t*>(at) : scratch.half;
  if (Element::of(table) == DType::kBFloat16) {
    round_row<true>(columns, values, words, half);
  } else {
    round_row<false>(columns, values, words, half);
  }
  if constexpr (kCols == 0) {
    std::memcpy(at, half, static_cast<std::size_t>(table.cols) * 2);
  }
}

/// Writes finite padded fp32 values as unique row u. `words` are the row's (RowWords).
template <class Element, int kCols>
HWY_INLINE void write_row(Columns<kCols> columns,
                          const SparseUpdate& update,
                          const std::uint32_t* words,
                          std::int64_t u,
                          const float* values,
                          const RowScratch& scratch) {
  const RowTable& table = update.table;
  const std::int64_t slot = update.runs.slots[u];
  char* const at = static_cast<char*>(table.weights) + slot * table.weight_stride;
  if (Element::of(table) == DType::kFloat32) {
    copy_floats(columns, values, reinterpret_cast<float*>(at));
  } else if (Element::of(table) == DType::kSplitBFloat16) {
    write_halves(columns, table, slot, values);
  } else {
    write_rounded<Element>(columns, table, words, at, values, scratch);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
