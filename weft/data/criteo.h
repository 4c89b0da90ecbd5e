/// The Criteo click logs: Kaggle's train.txt and the Terabyte set's day_N.
///
/// Format   one sample per line, fields separated by tabs, no header: label (0 or 1), 13 integers
///          (may be empty or negative), 26 categories of up to 8 hexadecimal digits (may be empty).
///          Lines end in \n or \r\n; the last may lack it. Plain, .gz or .zst.
/// Columns  labels: label. dense: I1..I13, missing = NaN. categorical: C1..C26, the id being the
///          unsigned 32-bit value; missing = an empty bag.
/// Access   sequential: the text of the loaded range is kept, and only samples that are read are
///          parsed. Integers above 2^24 are rounded to float.
/// Source   https://www.kaggle.com/c/criteo-display-ad-challenge/data
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "weft/data/source.h"

namespace weft::data {

inline constexpr std::size_t kCriteoIntegers = 13;
inline constexpr std::size_t kCriteoCategories = 26;
inline constexpr std::size_t kCriteoFields = 1 + kCriteoIntegers + kCriteoCategories;

/// A line of a well-formed log has fewer than 450 bytes; a longer one than this is refused.
inline constexpr std::size_t kCriteoMaxLine = 4096;

/// One parsed line.
struct CriteoSample {
  float label = 0.0F;
  std::array<float, kCriteoIntegers> integers{};             ///< NaN = missing
  std::array<std::int64_t, kCriteoCategories> categories{};  ///< -1 = missing
};

/// Where a line is, for messages.
struct LinePlace {
  std::string_view file;
  std::int64_t line = 0;  ///< from 1
};

/// Parses one line without its end. Throws Error(kData) naming place, column and value.
/// Cost: one pass over the bytes, no allocation.
void parse_criteo_line(std::string_view line, const LinePlace& place, CriteoSample& out);

/// A source over `files`, in that order, as one log. The files exist (expand_paths).
std::unique_ptr<Source> open_criteo(std::vector<std::string> files);

}  // namespace weft::data
