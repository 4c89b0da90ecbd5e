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
    if (is_drawn() && update_.params.draws.rule != DrawRule::kWord) {
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

  /// The words of the i-th of them, for WholeWords or HalfWords: one for each padded column, or one
  /// for two.
  [[nodiscard]] const std::uint32_t* of(std::int64_t i) const {
    const std::int64_t words = i * columns_.padded();
    return words_ + (update_.params.draws.rule == DrawRule::kWord ? words : words / 2);
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
    const std::int64_t listed = rows_.size() * calls();
    switch (update_.params.draws.rule) {
      case DrawRule::kWord:
        for (std::int64_t i = 0; i < rows_.size(); ++i) {
          random_words(keys_, whole_row(i), first_counter(4), columns_.padded(),
                       words_ + i * columns_.padded());
        }
        return;
      case DrawRule::kHalfWord:
        return listed_words<kPhiloxRounds>(keys_, low_, high_, listed, words_);
      case DrawRule::kHalfWordOfSevenRounds:
        return listed_words<kFewestPhiloxRounds>(keys_, low_, high_, listed, words_);
    }
  }

  const Columns<kCols> columns_;
  const SparseUpdate& update_;
  RoundKeys keys_;
  std::uint32_t* words_;
  std::uint64_t* low_;
  std::uint64_t* high_;
  Range rows_;
};

/// The random bits of columns from i on, by rules that draw a word for each.
struct WholeWords {
  template <class DU>
  static HWY_INLINE hn::Vec<DU> all(DU d, const std::uint32_t* words, std::int64_t i) {
    return hn::LoadU(d, words + i);
  }

  /// The low 16 of all().
  template <class DU>
  static HWY_INLINE hn::Vec<DU> low(DU d, const std::uint32_t* words, std::int64_t i) {
    return hn::And(all(d, words, i), hn::Set(d, 0xFFFFU));
  }
};

/// The random bits by rules of half words: the low 16 bits of a column are the half of a word that
/// lies at its place, the others are its neighbour's.
struct HalfWords {
  template <class DU>
  static HWY_INLINE hn::Vec<DU> all(DU d, const std::uint32_t* words, std::int64_t i) {
    const auto own = low(d, words, i);
    return hn::Or(own, hn::ShiftLeft<16>(hn::Shuffle2301(own)));
  }

  template <class DU>
  static HWY_INLINE hn::Vec<DU> low(DU d, const std::uint32_t* words, std::int64_t i) {
    const hn::Rebind<std::uint16_t, DU> d16;
    return hn::PromoteTo(d, hn::LoadU(d16, reinterpret_cast<const std::uint16_t*>(words) + i));
  }
};

/// The bits in bf16 of finite values, as to_bfloat16_stochastic(): adding 16 random bits carries
/// into the kept half as often as the dropped half says. Of the largest numbers, whose carry would
/// be an infinity, the dropped half is cut off first.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_bf16(D d,
                                                       hn::Vec<D> values,
                                                       hn::Vec<hn::RebindToUnsigned<D>> random) {
  const hn::RebindToUnsigned<D> du;
  const auto largest = hn::Set(d, 0x1.FEp127F);
  const auto kept = hn::Min(hn::Max(values, hn::Neg(largest)), largest);
  return hn::ShiftRight<16>(hn::Add(hn::BitCast(du, kept), random));
}

/// The fp16 of magnitudes below 2^-32, which is 0 or the smallest subnormal number. The magnitude,
/// cut off to units of 2^-56, and the random word are added: the result is the carry out of 32
/// bits.
template <class DU>
HWY_INLINE hn::Vec<DU> carry_fp16(DU d, hn::Vec<DU> magnitude, hn::Vec<DU> random) {
  const auto exponent = hn::ShiftRight<23>(magnitude);
  const auto is_normal = hn::Gt(exponent, hn::Zero(d));
  const auto mantissa = hn::Or(hn::And(magnitude, hn::Set(d, 0x7FFFFFU)),
                               hn::IfThenElseZero(is_normal, hn::Set(d, 0x800000U)));
  // Value = mantissa / 2^(126 - exponent) units.
  const auto over = hn::Sub(hn::Set(d, 94U), hn::Min(exponent, hn::Set(d, 94U)));
  const auto cut = hn::Shr(mantissa, hn::Min(over, hn::Set(d, 31U)));
  return hn::IfThenElseZero(hn::Lt(hn::Add(cut, random), cut), hn::Set(d, 1U));
}

/// The bits in fp16 of any finite values, as to_float16_stochastic(): 13 bits are dropped of a
/// normal result, more of a subnormal one.
template <class D>
HWY_INLINE hn::Vec<hn::RebindToUnsigned<D>> round_any_fp16(
    D /*d*/, hn::Vec<D> values, hn::Vec<hn::RebindToUnsigned<D>> random) {
  const hn::RebindToUnsigned<D> d;
  const auto bits = hn::BitCast(d, values);
  const auto sign = hn::And(hn::ShiftRight<16>(bits), hn::Set(d, 0x8000U));
  const auto magnitude = hn::And(bits, hn::Set(d, 0x7FFFFFFFU));
  const auto exponent = hn::ShiftRight<23>(magnitude);
  // Value = mantissa / 2^dropped units in the last place of the result.
  const auto mantissa = hn::Or(hn::And(magnitude, hn::Set(d, 0x7FFFFFU)), hn::Set(d, 0x800000U));
  const auto at_least_normal = hn::Max(exponent, hn::Set(d, 113U));
  const auto below_normal = hn::Sub(at_least_normal, exponent);
  const auto dropped = hn::Min(hn::Add(below_normal, hn::Set(d, 13U)), hn::Set(d, 31U));
  const auto above = hn::Shl(hn::Set(d, 0xFFFFFFFFU), dropped);
  const auto kept = hn::Shr(hn::Add(mantissa, hn::AndNot(above, random)), dropped);
  // The hidden bit of a normal result adds one to its exponent.
  const auto normal_exponent = hn::ShiftLeft<10>(hn::Sub(at_least_normal, hn::Set(d, 113U)));
  auto rounded = hn::Min(hn::Add(kept, normal_exponent), hn::Set(d, 0x7BFFU));
  const auto is_tiny = hn::Lt(exponent, hn::Set(d, 95U));
  if (HWY_UNLIKELY(!hn::AllFalse(d, is_tiny))) {
    rounded = hn::IfThenElse(is_tiny, carry_fp16(d, magnitude, random), rounded);
  }
  return hn::Or(rounded, sign);
}

/// Writes finite values of columns from i on, as to_float16_stochastic().
template <class Words, class D>
HWY_INLINE void write_fp16(
    D d, const float* values, const std::uint32_t* words, std::int64_t i, std::uint16_t* out) {
  const hn::RebindToUnsigned<D> du;
  const hn::Rebind<std::uint16_t, D> d16;
  const auto row = hn::LoadU(d, values + i);
#if HWY_TARGET != HWY_SSE4  // which has no instruction that makes fp16
  // Where all results are normal and finite, the dropped bits are the last 13 of the float.
  const auto smallest = hn::Set(du, 0x38800000U);
  const auto magnitude = hn::And(hn::BitCast(du, row), hn::Set(du, 0x7FFFFFFFU));
  if (hn::AllTrue(
          du, hn::Lt(hn::Sub(magnitude, smallest), hn::Sub(hn::Set(du, 0x477FE000U), smallest)))) {
    const hn::Rebind<hwy::float16_t, D> df16;
    const auto dropped = hn::Set(du, 0x1FFFU);
    const auto random = hn::And(Words::low(du, words, i), dropped);
    const auto exact = hn::AndNot(dropped, hn::Add(hn::BitCast(du, row), random));
    hn::StoreU(hn::BitCast(d16, hn::DemoteTo(df16, hn::BitCast(d, exact))), d16, out + i);
    return;
  }
#endif
  hn::StoreU(hn::TruncateTo(d16, round_any_fp16(d, row, Words::all(du, words, i))), d16, out + i);
}

template <bool kBf16, class Words, int kCols>
HWY_INLINE void round_row(Columns<kCols> columns,
                          const float* values,
                          const std::uint32_t* words,
                          std::uint16_t* out) {
  for_padded(columns, [&](auto d, std::int64_t i) HWY_ATTR {
    if constexpr (kBf16) {
      const hn::RebindToUnsigned<decltype(d)> du;
      const hn::Rebind<std::uint16_t, decltype(d)> d16;
      const auto rounded = round_bf16(d, hn::LoadU(d, values + i), Words::low(du, words, i));
      hn::StoreU(hn::TruncateTo(d16, rounded), d16, out + i);
    } else {
      write_fp16<Words>(d, values, words, i, out);
    }
  });
}

/// Rounds values stochastically to a row of 16-bit elements.
template <class Element, class Words, int kCols>
HWY_INLINE void write_rounded(Columns<kCols> columns,
                              const RowTable& table,
                              const std::uint32_t* words,
                              void* at,
                              const float* values,
                              const RowScratch& scratch) {
  auto* const half = kCols > 0 ? static_cast<std::uint16_t*>(at) : scratch.half;
  if (Element::of(table) == DType::kBFloat16) {
    round_row<true, Words>(columns, values, words, half);
  } else {
    round_row<false, Words>(columns, values, words, half);
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
  } else if (update.params.draws.rule == DrawRule::kWord) {
    write_rounded<Element, WholeWords>(columns, table, words, at, values, scratch);
  } else {
    write_rounded<Element, HalfWords>(columns, table, words, at, values, scratch);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
