/// Private to data/: Criteo lines to columns, many lines at a time.
///
/// A line is first cut into fields, then all lines of a tile are decoded column by column, so that
/// each loop does one thing to one kind of field, without a branch that depends on the data:
/// whether a field is missing, negative or short is arithmetic. Eight digits are turned into their
/// value in one 64-bit word. Cost: about a nanosecond per byte of text and core.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "weft/data/criteo.h"
#include "weft/data/source.h"

namespace weft::data {

/// Digits of an integer at most, so that an int64 cannot overflow.
inline constexpr int kCriteoMaxDigits = 18;

/// "label", "I1" .. "I13", "C1" .. "C26".
std::string criteo_column(std::size_t field);

/// Fills a block with lines, in the order in which they are added.
class CriteoDecoder {
 public:
  /// Lines that are added at once, at most: their fields' ends stay in the first cache.
  static constexpr std::size_t kTile = 64;
  /// Bytes before and after the text that must be readable. What they hold is without effect.
  static constexpr std::size_t kFront = 8;
  static constexpr std::size_t kBack = 64;

  /// `out` gets its shape for `samples` lines; columns not selected are checked and left empty.
  CriteoDecoder(const ColumnSelection& selection, std::size_t samples, RawBlock& out);

  /// Lines without their ends, none of kCriteoMaxLine bytes or more. False where one of them is not
  /// a Criteo line, exactly if parse_criteo_line() refuses it; the block is then of no use.
  bool add(std::span<const std::string_view> lines);

  /// After the last line.
  void finish();

 private:
  bool cut(std::span<const std::string_view> lines);
  bool add_labels();
  bool add_integers(std::size_t column);
  bool add_categories(std::size_t column);

  const ColumnSelection& selection_;
  RawBlock& out_;
  std::size_t first_ = 0;                             // line of the block that is the tile's first
  std::size_t lines_ = 0;                             // of the tile
  std::array<std::size_t, kCriteoCategories> ids_{};  // of the lines before the tile
  std::array<const char*, kTile> text_{};
  // Of field f of line l: where it ends in the line, at l * kCriteoFields + f. Cutting a line
  // writes up to seven entries too many, into the next line's, which follows.
  std::array<std::uint16_t, kTile * kCriteoFields + 8> ends_{};
  // Of columns that are only checked.
  std::array<float, kTile> unused_floats_{};
  std::array<std::int64_t, kTile + 1> unused_ids_{}, unused_offsets_{};
};

}  // namespace weft::data
