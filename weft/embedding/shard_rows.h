/// ShardRows: the rows of a TableShard as state, by list (RowState in weft/tensor/state.h).
///
/// Threads: as RowState. Inside a stage, as all state.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "weft/embedding/row_cut.h"
#include "weft/embedding/row_marks.h"
#include "weft/embedding/written_rows.h"
#include "weft/storage/row_backing.h"
#include "weft/tensor/state.h"

namespace weft::embedding {

class TableShard;

class ShardRows final : public RowState {
 public:
  /// Of a shard that owns it.
  explicit ShardRows(TableShard& shard) : shard_(shard) {}

  /// From now on notes which rows are written. REQUIRES: all have their initial values.
  void begin_written();

  [[nodiscard]] Shape row_shape() const override;
  [[nodiscard]] bool is_sparse() const override;
  void for_each_row(StateRows which, const StateRowsVisitor& visit) const override;
  [[nodiscard]] std::optional<std::int64_t> written_rows() const override;
  void for_each_written_row(const StateRowsVisitor& visit) const override;
  void read_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;
  void initial_rows(std::span<const std::int64_t> rows, std::byte* packed) const override;
  void write_rows(std::span<const std::int64_t> rows, const std::byte* packed) override;
  [[nodiscard]] RowFiles* files() const override;
  void mark() override;
  std::unique_ptr<RowCut> cut(StateRows which, CopyRoom& room) override;

  /// Notes rows, counted within the shard, that an update is about to change; a cut copies them.
  /// Before the first mark(), until which all existing rows count as changed, it only notes that
  /// they are written.
  void note_change(std::span<const std::int64_t> rows);

  /// Where so many rows are to be marked that an update is about to change; null where nobody keeps
  /// count. Once updates have marked as many rows as the shard has, which costs less than a hash of
  /// them, nobody does any more.
  WrittenRows* begin_marks(std::int64_t rows);

  /// Notes rows, or all, that somebody has changed. REQUIRES: there is no cut.
  void note_written(std::span<const std::int64_t> rows);
  void note_all_written();

  /// Numbers in the whole table of rows counted within the shard.
  void whole_rows(std::span<const std::int64_t> rows, std::vector<std::int64_t>& whole) const;

  /// Called by the cut that ends.
  void end_cut();

  /// Whether anybody wants to know what has changed since mark().
  [[nodiscard]] bool notes_changes() const { return changed_.has_value(); }

  /// Which rows are written, to be told of more of them; null where nobody keeps count.
  [[nodiscard]] WrittenRows* written() { return written_ ? &*written_ : nullptr; }

 private:
  void check_no_cut() const;
  void for_each_local(StateRows which, const storage::RowsVisitor& visit) const;

  TableShard& shard_;
  std::optional<WrittenRows> written_;  // where all rows have host memory
  std::int64_t updated_ = 0;            // rows that begin_marks() was told of
  std::optional<RowMarks> changed_;     // since mark()
  mutable std::mutex cut_mutex_;        // of the pointer, and while an update looks at the cut
  ShardCut* cut_ = nullptr;             // there may be one
};

}  // namespace weft::embedding
