/// The JSON of `weft data stats` (docs/data.md) as far as a planner asks for it. Everything it
/// refuses is an Error(kConfig) that names the file, the column, what stands there and what should.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace weft::planner {

/// Of one categorical column. Lengths and shares are finite, shares within [0, 1].
struct ColumnStats {
  double missing = 0.0;      ///< share of samples without an id
  double length_mean = 0.0;  ///< ids per sample, at least 1 - missing
  double distinct = 0.0;     ///< ids that occur; whole
  double top_1 = 0.0;        ///< shares of all ids that the most frequent so many get: ascending
  double top_10 = 0.0;
  double top_100 = 0.0;
  double top_1000 = 0.0;
  double top_percent = 0.0;  ///< of 1 % of the distinct ones
};

/// By name. Of columns that `wanted` does not name only the name is looked at.
std::map<std::string, ColumnStats> read_column_stats(
    const std::string& text,
    const std::string& file,
    const std::map<std::string, std::string>& wanted);  ///< column: a feature that reads it

}  // namespace weft::planner
