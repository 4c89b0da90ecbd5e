/// State that is saved, restored, hashed and compared: how a checkpoint sees a table or a layer
/// without knowing either.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/layout/packed_rows.h"
#include "weft/tensor/dtype.h"
#include "weft/tensor/row_cut.h"
#include "weft/tensor/row_files.h"

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

/// Called with some rows of the whole matrix's numbers, ascending; over all calls each comes once.
using StateRowsVisitor = std::function<void(std::span<const std::int64_t> rows)>;

/// Which rows a RowState visits. kExisting: those that some update or load may have changed; all
/// others have their initial values. kChanged: those of them that may have changed since mark().
/// kUnwritten: of the existing ones those that RowState::files(), if there are any, do not have as
/// they are; kChangedUnwritten: of the changed ones.
enum class StateRows : std::uint8_t { kExisting, kChanged, kUnwritten, kChangedUnwritten };

/// The initial value of rows that are not there, as a rule that a later program can follow
/// (weft/kernels/initial_values.h): text for messages and files, equal where values are.
struct InitialRule {
  std::string rule;          ///< "zero", "uniform", "normal"
  std::uint64_t key = 0;     ///< of Philox
  float scale = 0.0F;        ///< of the values
  float accumulator = 0.0F;  ///< of all state

  friend bool operator==(const InitialRule&, const InitialRule&) = default;
};

/// A block of a table, whose rows can be had one by one: all items of a row together, as packed
/// rows (weft/layout/packed_rows.h). The items of the same source are the same state, cut
/// otherwise. Threads: const calls come from any thread, at the same time, but not beside updates,
/// except read_rows() of rows that these do not write (RowCut sees to that).
class RowState {
 public:
  virtual ~RowState() = default;

  /// What a packed row has, and which rows these are.
  struct Shape {
    std::string parameter;          ///< as in the items
    std::int64_t first_item = 0;    ///< of the items of these rows in their source
    std::int64_t items = 0;         ///< the weights, then the kinds of state, in order
    RowSet rows;                    ///< held here, of the whole matrix's numbers
    Range cols;                     ///< held here
    DType dtype = DType::kFloat32;  ///< of the weights as they lie: also split_bf16
    layout::PackedRow packed;       ///< fields of a packed row
    bool first_holder = true;       ///< this rank saves it
    InitialRule initial;            ///< of rows that do not exist
  };

  /// The shape, which never changes.
  [[nodiscard]] virtual Shape row_shape() const = 0;

  /// Whether rows that do not exist take no space here, so that visiting pays.
  [[nodiscard]] virtual bool is_sparse() const = 0;

  /// Visits rows. Order between calls is free.
  virtual void for_each_row(StateRows which, const StateRowsVisitor& visit) const = 0;

  /// How many rows somebody may have written since they got their initial values, which all others
  /// have; nullopt where nobody keeps count, so that it may be any.
  [[nodiscard]] virtual std::optional<std::int64_t> written_rows() const { return std::nullopt; }

  /// Visits these rows. REQUIRES: written_rows() has a number.
  virtual void for_each_written_row(const StateRowsVisitor& /*visit*/) const {}

  /// Reads held rows to `packed` [rows · bytes of a packed row], in host memory; rows that do not
  /// exist read as their initial values.
  virtual void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const = 0;

  /// Makes the initial values of held rows, as read_rows() does of those that do not exist.
  virtual void initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const = 0;

  /// Writes held rows, which exist from then on.
  virtual void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) = 0;

  /// The files in which rows lie that are not in memory, or null. Several states may share them.
  [[nodiscard]] virtual RowFiles* files() const { return nullptr; }

  /// From now on kChanged counts anew.
  virtual void mark() = 0;

  /// Cuts off the rows as they are now, to be read while updates go on, and marks. Between two
  /// steps; one cut of a state at a time. `room`, which outlives the cut, bounds the copies that
  /// updates make. Cost: a visit of the rows that exist, where they are asked for and do not all
  /// exist, or of unwritten rows of the marks in memory; else none per row. Memory: a bit per row.
  [[nodiscard]] virtual std::unique_ptr<RowCut> cut(StateRows which, CopyRoom& room) = 0;
};

/// Rows in host memory, so many bytes from row to row; nowhere where `begin` is null.
struct RowsInPlace {
  const std::byte* begin = nullptr;
  std::int64_t stride = 0;
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

  /// Where the rows that read_state() would copy lie, until somebody changes them; nowhere, where
  /// their bytes do not lie like that in host memory.
  [[nodiscard]] virtual RowsInPlace rows_in_place(std::size_t /*index*/,
                                                  std::int64_t /*row_begin*/,
                                                  std::int64_t /*rows*/) const {
    return {};
  }

  /// The items' rows one by one, where they are those of a table; else null.
  [[nodiscard]] virtual const RowState* row_state() const { return nullptr; }
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

  /// The same of rows in a list, ascending: `in` is [rows, col_end - col_begin].
  virtual void write_listed_state(std::size_t index,
                                  std::span<const std::int64_t> rows,
                                  std::int64_t col_begin,
                                  std::int64_t col_end,
                                  const void* in) {
    const std::int64_t bytes = (col_end - col_begin) * size_of(state_items()[index].dtype);
    const auto* next = static_cast<const std::byte*>(in);
    for (const std::int64_t row : rows) {
      write_state(index, row, 1, col_begin, col_end, next);
      next += bytes;
    }
  }

  /// The items' rows one by one, where they are those of a table; else null.
  [[nodiscard]] virtual RowState* row_sink() { return nullptr; }
};

}  // namespace weft
