/// Which rows of tables are asked for most, and so may become hot rows (docs/sharding.md).
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "weft/data/source.h"
#include "weft/spec/config.h"

namespace weft::data {

/// Of a table: rows after mapping, all features that read it counted together.
struct HotRows {
  /// One row of the whole table, and how often it is asked for.
  struct Row {
    std::int64_t row = 0;
    double share = 0.0;  ///< of the table's ids
  };

  std::string table;
  std::int64_t ids = 0;   ///< of all its rows
  std::int64_t most = 0;  ///< rows that were asked for; fewer are listed where no more occurred
  std::vector<Row> rows;  ///< most frequent first, equal ones by their number
};

/// Counts what features without a vocabulary ask for; with one, rows are numbered by frequency,
/// which is known without counting. Memory: up to 32 bytes per
/// distinct row up to `exact_distinct` of a table; rows first seen after that are not counted.
class RowCounter {
 public:
  /// Throws Error(kConfig) where a feature's column is not in the schema. `source_name` is for
  /// messages.
  RowCounter(const spec::Config& config,
             const Schema& schema,
             const std::string& source_name,
             std::int64_t exact_distinct);
  ~RowCounter();

  /// Throws Error(kData) for ids that cannot be mapped, as training does.
  void add(const RawBlock& block);

  /// The `most` most frequent rows of each table.
  [[nodiscard]] std::vector<HotRows> most_frequent(std::int64_t most) const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace weft::data
