// Private to kernels/cpu: small blocks turned (transposed) in registers. Included once per Highway
// target.

#if defined(WEFT_KERNELS_CPU_TURN_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WEFT_KERNELS_CPU_TURN_INL_H_
#undef WEFT_KERNELS_CPU_TURN_INL_H_
#else
#define WEFT_KERNELS_CPU_TURN_INL_H_
#endif

#include <cstdint>

#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// Turns the words of four rows within each 128 bits: store(v, j) gets the j-th words of blocks.
template <class D, class V, class Store>
HWY_INLINE void turn_words(D d, V row0, V row1, V row2, V row3, const Store& store) {
  const hn::Repartition<std::uint64_t, D> wide;
  const auto low01 = hn::BitCast(wide, hn::InterleaveLower(d, row0, row1));
  const auto high01 = hn::BitCast(wide, hn::InterleaveUpper(d, row0, row1));
  const auto low23 = hn::BitCast(wide, hn::InterleaveLower(d, row2, row3));
  const auto high23 = hn::BitCast(wide, hn::InterleaveUpper(d, row2, row3));
  store(hn::BitCast(d, hn::InterleaveLower(wide, low01, low23)), 0);
  store(hn::BitCast(d, hn::InterleaveUpper(wide, low01, low23)), 1);
  store(hn::BitCast(d, hn::InterleaveLower(wide, high01, high23)), 2);
  store(hn::BitCast(d, hn::InterleaveUpper(wide, high01, high23)), 3);
}

/// Loads blocks of four words side by side, of rows r, r + 4, and so on; from(row) is where the
/// block of a row lies.
template <class D, class From>
HWY_INLINE hn::Vec<D> load_blocks(D d, const From& from, std::int64_t r) {
  if constexpr (hn::MaxLanes(d) <= 4) {
    return hn::LoadU(d, from(r));
  } else {
    const hn::Half<D> half;
    constexpr auto kBehind = static_cast<std::int64_t>(hn::MaxLanes(d) / 2);
    return hn::Combine(d, load_blocks(half, from, r + kBehind), load_blocks(half, from, r));
  }
}

/// Turns the four words of as many rows as a register has lanes: store(v, j) gets the j-th words of
/// all rows, in their order.
template <class D, class From, class Store>
HWY_INLINE void turn_rows(D d, const From& from, const Store& store) {
  turn_words(d, load_blocks(d, from, 0), load_blocks(d, from, 1), load_blocks(d, from, 2),
             load_blocks(d, from, 3), store);
}

/// to[j · to_stride + i] = from[i · from_stride + j] for i, j below 4. Word has 32 bits.
template <typename Word>
HWY_INLINE void turn_4x4(const Word* from,
                         std::int64_t from_stride,
                         Word* to,
                         std::int64_t to_stride) {
  const hn::FixedTag<Word, 4> d;
  turn_words(d, hn::LoadU(d, from), hn::LoadU(d, from + from_stride),
             hn::LoadU(d, from + 2 * from_stride), hn::LoadU(d, from + 3 * from_stride),
             [&](auto v, std::int64_t j) HWY_ATTR { hn::StoreU(v, d, to + j * to_stride); });
}

/// Registers of whole cache lines, where there are such, and of 128 bits.
using WideWords = hn::CappedTag<std::uint32_t, 16>;
using NarrowWords = hn::FixedTag<std::uint32_t, 4>;

/// Rows and columns that turn_block() turns with words of D: rows as many as Word has lanes in D,
/// columns as many as 16 bytes have.
template <typename Word, class D>
constexpr std::int64_t kTurnedRows = hn::MaxLanes(hn::Repartition<Word, D>());
template <typename Word>
constexpr std::int64_t kTurnedCols = 16 / static_cast<std::int64_t>(sizeof(Word));

/// to[j · to_stride + i] = from[i · from_stride + j] for rows i and columns j of a block.
template <class D>
HWY_INLINE void turn_block(D d,
                           const std::uint32_t* from,
                           std::int64_t from_stride,
                           std::uint32_t* to,
                           std::int64_t to_stride) {
  turn_rows(
      d, [&](std::int64_t row) HWY_ATTR { return from + row * from_stride; },
      [&](auto v, std::int64_t j) HWY_ATTR { hn::StoreU(v, d, to + j * to_stride); });
}

/// Two rows of 16 bits, interleaved, are one row of words: of the lower four columns, and of the
/// upper.
template <class D>
HWY_INLINE void turn_block(D d,
                           const std::uint16_t* from,
                           std::int64_t from_stride,
                           std::uint16_t* to,
                           std::int64_t to_stride) {
  const hn::Repartition<std::uint16_t, D> d16;
  const auto rows_of = [&](std::int64_t first, std::int64_t pair) HWY_ATTR {
    const auto place = [&](std::int64_t row) HWY_ATTR {
      return reinterpret_cast<const std::uint32_t*>(from + (2 * row + first) * from_stride);
    };
    return hn::BitCast(d16, load_blocks(d, place, pair));
  };
  const auto turn = [&](const auto& words, std::int64_t col) HWY_ATTR {
    turn_words(d, words(0), words(1), words(2), words(3), [&](auto v, std::int64_t j) HWY_ATTR {
      hn::StoreU(hn::BitCast(d16, v), d16, to + (col + j) * to_stride);
    });
  };
  const auto lower = [&](std::int64_t r) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveLower(d16, rows_of(0, r), rows_of(1, r)));
  };
  const auto upper = [&](std::int64_t r) HWY_ATTR {
    return hn::BitCast(d, hn::InterleaveUpper(d16, rows_of(0, r), rows_of(1, r)));
  };
  turn(lower, 0);
  turn(upper, 4);
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#endif
