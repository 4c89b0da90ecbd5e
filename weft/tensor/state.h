/// State that is saved, restored, hashed and compared: how a checkpoint sees a table or a layer
/// without knowing either.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/tensor/dtype.h"

namespace weft {

/// One matrix of state, or the block of it that this rank holds. The identity is
/// (parameter, kind); rows and cols are those of the whole logical matrix, whoever holds it.
struct StateItem {
  std::string parameter;  ///< e.g. "tables.C1" or "dense.top.0.weight"
  std::string kind;       ///< "weight", or an optimizer state: "sum", "exp_avg", "exp_avg_sq", ...
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t row_begin = 0;  ///< the block held here: rows [row_begin, row_end)
  std::int64_t row_end = 0;
  std::int64_t col_begin = 0;  ///< and columns [col_begin, col_end)
  std::int64_t col_end = 0;
  bool first_holder = true;   ///< this rank saves and counts the block; other holders compare
  std::int64_t row_step = 1;  ///< of the rows held: row_begin, row_begin + row_step, ...

  [[nodiscard]] RowSet held() const { return {row_begin, row_end, row_step}; }
};

/// Gives state out. Items are listed in a fixed order.
class StateSource {
 public:
  virtual ~StateSource() = default;
  /// Lists the items. An item's place in the list is the `index` of the other calls.
  [[nodiscard]] virtual std::vector<StateItem> state_items() const = 0;

  /// Copies `rows` of the held rows of item `index`, from row `row_begin` on, a compact
  /// [rows, col_end - col_begin] block of its dtype, into host memory at `out`.
  virtual void read_state(std::size_t index,
                          std::int64_t row_begin,
                          std::int64_t rows,
                          void* out) const = 0;
};

/// Takes state in. Blocks may come in any row order and cut anywhere between rows and columns.
class StateSink {
 public:
  virtual ~StateSink() = default;
  /// Lists the items. An item's place in the list is the `index` of the other calls.
  [[nodiscard]] virtual std::vector<StateItem> state_items() const = 0;

  /// Writes a compact block [rows, col_end - col_begin] of item `index` to `rows` of the held rows
  /// from row `row_begin` on, and to columns that lie inside the item's block. Rows and columns are
  /// numbered in the whole matrix.
  virtual void write_state(std::size_t index,
                           std::int64_t row_begin,
                           std::int64_t rows,
                           std::int64_t col_begin,
                           std::int64_t col_end,
                           const void* in) = 0;
};

}  // namespace weft
