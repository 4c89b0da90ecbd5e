/// Private to checkpoint/: hands packed rows of a stream to a sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/checkpoint/row_reader.h"
#include "weft/rowfile/layout.h"

namespace weft::checkpoint {

/// Which rows of a stream a target takes, and as what. Any thread may call it.
class RowSelection {
 public:
  /// All outlive it.
  RowSelection(const StoredTable& table, const RowStream& stream, const RowTarget& target);

  /// Whether stream and target have columns in common.
  [[nodiscard]] bool meets() const { return meets_; }

  /// Whether the target holds a row of this id.
  [[nodiscard]] bool wants(rowfile::RowId id) const {
    return id < static_cast<std::uint64_t>(target_->rows.end) &&
           target_->rows.contains(static_cast<std::int64_t>(id));
  }

  [[nodiscard]] std::int64_t row_bytes() const { return row_bytes_; }

 private:
  friend class RowBatch;

  /// Columns of an item that are stored in the stream and held by the target, and where they lie in
  /// a packed row.
  struct Part {
    std::size_t index = 0;         ///< of the item in the sink
    Range cols;                    ///< of both
    std::int64_t first = 0;        ///< of these among the stored ones
    std::int64_t stored_cols = 0;  ///< of the item in the stream
    std::int64_t size = 0;         ///< of an element
    std::int64_t offset = 0;       ///< of the item in a packed row
    bool in_halves = false;
  };

  void plan_parts(const StoredTable& table, const RowStream& stream);

  const RowTarget* target_;
  std::int64_t row_bytes_;
  bool meets_ = false;
  RowState* whole_ = nullptr;  ///< takes packed rows as they are
  std::vector<Part> parts_;    ///< else
};

/// Rows of one stream on their way to one target. One thread at a time, and any but for
/// hand_over().
class RowBatch {
 public:
  /// Begins anew, with the memory that there is and room for `most` rows.
  void begin(const RowSelection& selection, std::size_t most);

  /// Adds a row that the target wants; one that comes again replaces the one before.
  void add(rowfile::RowId id, const std::byte* packed);

  /// Makes of the rows what the sink takes. None is added behind it.
  void prepare();

  /// Gives them to the sink. Returns the bytes of all rows that were added.
  std::int64_t hand_over();

 private:
  void sort();
  void cut(const RowSelection::Part& part);

  const RowSelection* selection_ = nullptr;
  std::vector<std::int64_t> rows_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> cut_;  ///< parts, one after the other
  std::int64_t bytes_ = 0;
};

}  // namespace weft::checkpoint
