/// ShardRows: the rows of a TableShard as state, by list (RowState in weft/tensor/state.h).
///
/// Threads: as RowState. Inside a stage, as all state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "weft/embedding/row_marks.h"
#include "weft/tensor/state.h"

namespace weft::embedding {

class TableShard;

class ShardRows final : public RowState {
 public:
  /// Of a shard that owns it.
  explicit ShardRows(TableShard& shard) : shard_(shard) {}

  [[nodiscard]] Shape row_shape() const override;
  [[nodiscard]] bool is_sparse() const override;
  void for_each_row(StateRows which, const StateRowsVisitor& visit) const override;
  void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;
  void initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;
  void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) override;
  void mark() override;

  /// Notes rows, counted within the shard, that an update has changed. Costs nothing before the
  /// first mark(), until which all existing rows count as changed.
  void note_changed(std::span<const std::int64_t> rows);

  /// Notes all rows.
  void note_all_changed();

  /// Whether note_changed() has anything to do.
  [[nodiscard]] bool notes_changes() const { return changed_.has_value(); }

 private:
  TableShard& shard_;
  std::optional<RowMarks> changed_;  // since mark()
};

}  // namespace weft::embedding
