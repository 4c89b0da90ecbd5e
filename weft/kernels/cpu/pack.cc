// pack             for each panel, for each row (pair): 64 columns side by side (interleaved),
//                  or a line of each of its strips
//                  (bf16 stored as fp32: as fp32 panels, rounded and widened)
// pack_transposed  the same from columns: blocks of 16 x 16 words are turned in registers
// transpose        blocks of as many rows as a register has values, of 4 columns (fp32) or 8
//                  (bf16)
//
// A pair of bf16 rows is one row of 32-bit words, so bf16 panels are packed as words. Everything is
// read once and written once, by whole cache lines where a register is one. What is written seldom
// lies in a cache: it is written in the order of memory where that is possible, and asked for
// beforehand where not.
// fp32 values become bf16 on the way: no rounded copy of the weights is kept.

#include "weft/kernels/cpu/pack.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

#include <hwy/cache_control.h>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/pack.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/bf16-inl.h"
#include "weft/kernels/cpu/turn-inl.h"
#include "weft/kernels/target.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

using Words = hn::ScalableTag<std::uint32_t>;
using WordVec = hn::Vec<Words>;

/// Words of bf16 pairs: `first` below, `second` above.
HWY_INLINE WordVec join(Words d, WordVec first, WordVec second) {
  return hn::Or(hn::ShiftRight<16>(first), hn::And(second, hn::Set(d, 0xFFFF0000U)));
}

HWY_INLINE WordVec load_upper_half(Words d, const float* from) {
  return upper_half(d, hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(from)));
}

HWY_INLINE WordVec load_upper_half(Words d, const BFloat16* from) {
  const hn::Rebind<std::uint16_t, Words> half;
  return hn::ShiftLeft<16>(
      hn::PromoteTo(d, hn::LoadU(half, reinterpret_cast<const std::uint16_t*>(from))));
}

/// A bf16 value as fp32: its bits in the upper half, nothing below.
HWY_INLINE WordVec widened(Words d, WordVec upper) {
  return hn::And(upper, hn::Set(d, 0xFFFF0000U));
}

/// What a word of a packed matrix is.
enum class WordKind : std::uint8_t { kFloat, kPair, kWidened };

WordKind word_kind(const PackedMatrix& to) {
  if (to.stored == DType::kBFloat16) {
    return WordKind::kPair;
  }
  return to.dtype == DType::kFloat32 ? WordKind::kFloat : WordKind::kWidened;
}

/// Columns of one row in a panel, zeros behind the last; all zeros for a row behind the last.
template <typename T>
HWY_INLINE const T* panel_row(Matrix<const T> from, std::int64_t row, std::int64_t panel, T* copy) {
  const std::int64_t begin = panel * kPanel;
  const std::int64_t count = row < from.rows ? std::min(kPanel, from.cols - begin) : 0;
  if (count == kPanel) {
    return from.row(row) + begin;
  }
  std::fill_n(copy, kPanel, T{});
  if (count > 0) {
    std::memcpy(copy, from.row(row) + begin, static_cast<std::size_t>(count) * sizeof(T));
  }
  return copy;
}

/// Where in a panel of strips so many words a column lie.
struct PanelPlace {
  std::int64_t words;
  std::int64_t strip;

  /// The row of words `word` of the strip that begins at column `begin`.
  [[nodiscard]] std::int64_t at(std::int64_t word, std::int64_t begin) const {
    return begin * words + word * strip;
  }

  /// Returns the same place for any column `col`; what follows it is in its strip alone.
  [[nodiscard]] std::int64_t at_column(std::int64_t word, std::int64_t col) const {
    return at(word, col - col % strip) + col % strip;
  }
};

/// A row's words in a panel.
template <WordKind kKind, typename T>
HWY_INLINE void pack_words(const T* row,
                           const PanelPlace& place,
                           std::int64_t word,
                           std::uint32_t* panel) {
  static_assert(kKind != WordKind::kPair);
  const Words d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t strip = 0; strip < kPanel; strip += place.strip) {
    std::uint32_t* const out = panel + place.at(word, strip);
    const T* const from = row + strip;
    for (std::int64_t c = 0; c < place.strip; c += lanes) {
      if constexpr (kKind == WordKind::kFloat) {
        hn::Store(hn::LoadU(d, reinterpret_cast<const std::uint32_t*>(from + c)), d, out + c);
      } else {
        hn::Store(widened(d, load_upper_half(d, from + c)), d, out + c);
      }
    }
  }
}

/// The words of two rows in a panel.
template <typename T>
HWY_INLINE void pack_pair(const T* first, const T* second, std::uint32_t* out) {
  const Words d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t c = 0; c < kPanel; c += lanes) {
    hn::Store(join(d, load_upper_half(d, first + c), load_upper_half(d, second + c)), d, out + c);
  }
}

template <typename T>
HWY_INLINE void load_widened(const T* from, std::uint32_t* out) {
  const Words d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  for (std::int64_t i = 0; i < 16; i += lanes) {
    hn::StoreU(widened(d, load_upper_half(d, from + i)), d, out + i);
  }
}

/// 16 words of a row, as they lie in memory after rounding.
HWY_INLINE void load_words(const float* from, WordKind kind, std::uint32_t* out) {
  const Words d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  if (kind == WordKind::kFloat) {
    std::memcpy(out, from, 16 * sizeof(float));
    return;
  }
  if (kind == WordKind::kWidened) {
    load_widened(from, out);
    return;
  }
  for (std::int64_t i = 0; i < 16; i += lanes) {
    const auto low = load_upper_half(d, from + 2 * i);
    const auto high = load_upper_half(d, from + 2 * i + lanes);
    hn::StoreU(join(d, hn::ConcatEven(d, high, low), hn::ConcatOdd(d, high, low)), d, out + i);
  }
}

HWY_INLINE void load_words(const BFloat16* from, WordKind kind, std::uint32_t* out) {
  if (kind == WordKind::kWidened) {
    load_widened(from, out);
    return;
  }
  std::memcpy(out, from, 16 * sizeof(std::uint32_t));
}

/// Panel `panel` of the transposed of `from`: 16 words of 16 of its rows at a time.
template <typename T>
void pack_turned(Matrix<const T> from,
                 std::int64_t panel,
                 const PackedMatrix& packed,
                 std::uint32_t* out) {
  constexpr std::int64_t kBlock = 16;
  const WordKind kind = word_kind(packed);
  const std::int64_t per_word = kind == WordKind::kPair ? 2 : 1;
  const PanelPlace place{packed_rows(packed.dtype, packed.rows) / per_word, packed.strip};
  const std::int64_t begin = panel * kPanel;
  HWY_ALIGN std::uint32_t block[kBlock * kBlock];
  HWY_ALIGN T copy[2 * kBlock];
  for (std::int64_t row = begin; row < begin + kPanel; row += kBlock) {
    for (std::int64_t word = 0; word < place.words; word += kBlock) {
      const std::int64_t col = word * per_word;
      const std::int64_t count = std::min(kBlock * per_word, from.cols - col);
      for (std::int64_t r = 0; r < kBlock; ++r) {
        if (row + r >= from.rows || count <= 0) {
          std::memset(block + r * kBlock, 0, kBlock * sizeof(std::uint32_t));
          continue;
        }
        const T* source = from.row(row + r) + col;
        if (count < kBlock * per_word) {
          std::fill_n(copy, 2 * kBlock, T{});
          std::memcpy(copy, source, static_cast<std::size_t>(count) * sizeof(T));
          source = copy;
        }
        load_words(source, kind, block + r * kBlock);
      }
      std::uint32_t* const to = out + place.at_column(word, row - begin);
      for (std::int64_t r = 0; r < kBlock; r += kTurnedRows<std::uint32_t, WideWords>) {
        for (std::int64_t w = 0; w < kBlock; w += kTurnedCols<std::uint32_t>) {
          turn_block(WideWords(), block + r * kBlock + w, kBlock, to + w * place.strip + r,
                     place.strip);
        }
      }
    }
  }
}

/// Asks for a whole panel's columns of a row a few rows ahead: rows lie too far apart for the
/// processor to see where the next one begins.
template <typename T>
HWY_INLINE void prefetch_row(Matrix<const T> from, std::int64_t row, std::int64_t panel) {
  constexpr std::int64_t kAhead = 8;
  constexpr auto kLine = 64 / static_cast<std::int64_t>(sizeof(T));
  if (row + kAhead < from.rows && (panel + 1) * kPanel <= from.cols) {
    const T* const begin = from.row(row + kAhead) + panel * kPanel;
    for (std::int64_t col = 0; col < kPanel; col += kLine) {
      hwy::Prefetch(begin + col);
    }
  }
}

/// Panel after panel, each written from its beginning to its end.
template <WordKind kKind, typename T>
void pack_rows(Matrix<const T> from, const PackedMatrix& to, Range panels) {
  constexpr std::int64_t kPerWord = kKind == WordKind::kPair ? 2 : 1;
  const std::int64_t words = packed_rows(to.dtype, to.rows) / kPerWord;
  const PanelPlace place{words, to.strip};
  HWY_ALIGN T copies[2][kPanel];
  auto* out = static_cast<std::uint32_t*>(to.data) + panels.begin * words * kPanel;
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel, out += words * kPanel) {
    for (std::int64_t word = 0; word < words; ++word) {
      prefetch_row(from, word * kPerWord, panel);
      const T* const first = panel_row(from, word * kPerWord, panel, copies[0]);
      if constexpr (kKind == WordKind::kPair) {
        prefetch_row(from, 2 * word + 1, panel);
        pack_pair(first, panel_row(from, 2 * word + 1, panel, copies[1]), out + word * kPanel);
      } else {
        pack_words<kKind>(first, place, word, out);
      }
    }
  }
}

template <typename T>
void pack_rows_as(WordKind kind, Matrix<const T> from, const PackedMatrix& to, Range panels) {
  if (kind == WordKind::kPair) {
    pack_rows<WordKind::kPair>(from, to, panels);
  } else if (kind == WordKind::kWidened) {
    pack_rows<WordKind::kWidened>(from, to, panels);
  } else if constexpr (std::is_same_v<T, float>) {  // check() lets bf16 into no panel of fp32
    pack_rows<WordKind::kFloat>(from, to, panels);
  }
}

void pack_panels(const ConstOperand& from, const PackedMatrix& to, Range panels) {
  if (from.dtype == DType::kFloat32) {
    pack_rows_as(word_kind(to), from.as<float>(), to, panels);
  } else {
    pack_rows_as(word_kind(to), from.as<BFloat16>(), to, panels);
  }
}

void pack_transposed_panel(const ConstOperand& from, const PackedMatrix& to, std::int64_t panel) {
  auto* const out = static_cast<std::uint32_t*>(to.slice_cols(panel * kPanel, to.cols).data);
  if (from.dtype == DType::kFloat32) {
    pack_turned(from.as<float>(), panel, to, out);
  } else {
    pack_turned(from.as<BFloat16>(), panel, to, out);
  }
}

/// By lines of columns, so that each line of the source is fetched once. Lines of the target are
/// asked for two lines ahead: their distance is one that no processor guesses. The last block of
/// rows or columns overlaps the one before it.
template <typename Word, class D>
void transpose_blocks(const ConstOperand& source, const Operand& target) {
  constexpr std::int64_t kLine = 64 / static_cast<std::int64_t>(sizeof(Word));
  constexpr std::int64_t kRows = kTurnedRows<Word, D>;
  constexpr std::int64_t kCols = kTurnedCols<Word>;
  const auto* const from = static_cast<const Word*>(source.data);
  auto* const to = static_cast<Word*>(target.data);
  const std::int64_t rows = source.rows;
  const std::int64_t cols = source.cols;
  for (std::int64_t line = 0; line < cols; line += kLine) {
    const std::int64_t line_end = std::min(cols, line + kLine);
    for (std::int64_t i = 0; i < rows; i += kRows) {
      const std::int64_t ahead = i + 2 * kLine;
      for (std::int64_t col = line; col < line_end && i % kLine == 0 && ahead < rows; ++col) {
        hwy::Prefetch(to + col * target.stride + ahead);
      }
      const std::int64_t row = std::min(i, rows - kRows);
      for (std::int64_t j = line; j < line_end; j += kCols) {
        const std::int64_t col = std::min(j, cols - kCols);
        turn_block(D(), from + row * source.stride + col, source.stride,
                   to + col * target.stride + row, target.stride);
      }
    }
  }
}

/// In blocks that the matrix has rows for, or value by value.
template <typename Word>
void transpose_words(const ConstOperand& source, const Operand& target) {
  const bool is_wide = source.cols >= kTurnedCols<Word>;
  if (is_wide && source.rows >= kTurnedRows<Word, WideWords>) {
    transpose_blocks<Word, WideWords>(source, target);
  } else if (is_wide && source.rows >= kTurnedRows<Word, NarrowWords>) {
    transpose_blocks<Word, NarrowWords>(source, target);
  } else {
    const auto* const from = static_cast<const Word*>(source.data);
    auto* const to = static_cast<Word*>(target.data);
    for (std::int64_t i = 0; i < source.rows; ++i) {
      for (std::int64_t j = 0; j < source.cols; ++j) {
        to[j * target.stride + i] = from[i * source.stride + j];
      }
    }
  }
}

void transpose_any(const ConstOperand& from, const Operand& to) {
  if (from.dtype == DType::kFloat32) {
    transpose_words<std::uint32_t>(from, to);
  } else {
    transpose_words<std::uint16_t>(from, to);
  }
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(pack_panels);
HWY_EXPORT(pack_transposed_panel);
HWY_EXPORT(transpose_any);

namespace {

void check(const ConstOperand& from, std::int64_t rows, std::int64_t cols, const PackedMatrix& to) {
  WEFT_CHECK(rows == to.rows && cols == to.cols &&
                 (from.dtype == to.dtype || from.dtype == DType::kFloat32),
             "[{}, {}] of {} packed as [{}, {}] of {}", rows, cols, to_string(from.dtype), to.rows,
             to.cols, to_string(to.dtype));
}

float value_at(const ConstOperand& from, std::int64_t i, std::int64_t j) {
  return from.dtype == DType::kFloat32 ? from.as<float>().row(i)[j]
                                       : to_float(from.as<BFloat16>().row(i)[j]);
}

/// Row-major columns of a panel, element by element: targets without panels are not for speed. They
/// have no products of bf16 either, so all of them are stored as fp32.
template <typename Value>
void fill_row_major(const PackedMatrix& to, std::int64_t panel, const Value& value) {
  const std::int64_t end = std::min(to.cols, (panel + 1) * kPanel);
  for (std::int64_t i = 0; i < to.rows; ++i) {
    for (std::int64_t j = panel * kPanel; j < end; ++j) {
      const float x = value(i, j);
      static_cast<float*>(to.data)[i * to.stride + j] =
          to.dtype == DType::kFloat32 ? x : to_float(to_bfloat16(x));
    }
  }
}

}  // namespace

std::int64_t packed_rows(DType dtype, std::int64_t rows) {
  return layout::packed_rows(current_packing(), element_of(dtype), rows);
}

std::int64_t PackedMatrix::layers() const {
  return layout::packed_layers(packing(), rows);
}

Range PackedMatrix::layer_rows(std::int64_t index) const {
  return layout::packed_layer(packing(), rows, index);
}

PackedMatrix PackedMatrix::layer(std::int64_t index) const {
  PackedMatrix one = *this;
  const Range range = layer_rows(index);
  one.data = static_cast<std::byte*>(data) + packed_bytes(dtype, range.begin, cols);
  one.rows = range.size();
  return one;
}

PackedMatrix PackedMatrix::slice_cols(std::int64_t begin, std::int64_t end) const {
  WEFT_CHECK(layers() == 1 && begin % kPanel == 0 && 0 <= begin && begin <= end && end <= cols,
             "columns [{}, {}) of a packed matrix of {}", begin, end, cols);
  PackedMatrix slice = *this;
  const std::int64_t elements = stride != 0 ? begin : begin * packed_rows(dtype, rows);
  slice.data = static_cast<std::byte*>(data) + elements * size_of(stored);
  slice.cols = end - begin;
  return slice;
}

std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t cols) {
  return layout::packed_bytes(current_packing(), element_of(dtype), rows, cols);
}

PackedMatrix packed_matrix(DType dtype, std::int64_t rows, std::int64_t cols, void* data) {
  const layout::Packing packing = current_packing();
  return {.data = data,
          .dtype = dtype,
          .stored = dtype_of(packing.stored(element_of(dtype))),
          .rows = rows,
          .cols = cols,
          .stride = packing.in_panels ? 0 : cols,
          .strip = packing.strip};
}

void pack(const ConstOperand& from, const PackedMatrix& to, Range panels) {
  check(from, from.rows, from.cols, to);
  if (to.stride != 0) {
    for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
      fill_row_major(to, panel,
                     [&](std::int64_t i, std::int64_t j) { return value_at(from, i, j); });
    }
    return;
  }
  for (std::int64_t l = 0; l < to.layers(); ++l) {
    const Range rows = to.layer_rows(l);
    HWY_DYNAMIC_DISPATCH(pack_panels)
    (from.slice_rows(rows.begin, rows.end), to.layer(l), panels);
  }
}

void pack_transposed(const ConstOperand& from, const PackedMatrix& to, Range panels) {
  check(from, from.cols, from.rows, to);
  for (std::int64_t panel = panels.begin; panel < panels.end; ++panel) {
    for (std::int64_t l = 0; to.stride == 0 && l < to.layers(); ++l) {
      const Range rows = to.layer_rows(l);
      HWY_DYNAMIC_DISPATCH(pack_transposed_panel)
      (from.slice_cols(rows.begin, rows.end), to.layer(l), panel);
    }
    if (to.stride != 0) {
      fill_row_major(to, panel,
                     [&](std::int64_t i, std::int64_t j) { return value_at(from, j, i); });
    }
  }
}

void transpose(const ConstOperand& from, const Operand& to) {
  WEFT_CHECK(from.dtype == to.dtype && from.rows <= to.cols && from.cols == to.rows,
             "[{}, {}] transposed to [{}, {}]", from.rows, from.cols, to.rows, to.cols);
  HWY_DYNAMIC_DISPATCH(transpose_any)(from, to);
  const std::int64_t added = to.cols - from.rows;
  for (std::int64_t i = 0; added > 0 && i < to.rows; ++i) {
    std::memset(to.slice_rows(i, i + 1).slice_cols(from.rows, to.cols).data, 0,
                static_cast<std::size_t>(added * size_of(to.dtype)));
  }
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
