/// Private to checkpoint/: hands packed rows of a stream to a sink.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/checkpoint/row_reader.h"
#include "weft/rowfile/layout.h"

namespace weft::checkpoint {

/// Rows of one stream on their way to one target.
class RowBatch {
 public:
  /// `table` and `target` outlive it.
  RowBatch(const StoredTable& table, const RowStream& stream, const RowTarget& target);

  /// Whether stream and target have columns in common. Where not, add() takes no row.
  [[nodiscard]] bool meets() const { return meets_; }

  /// Whether the target holds a row of this id.
  [[nodiscard]] bool wants(rowfile::RowId id) const {
    return id < static_cast<std::uint64_t>(target_.rows.end) &&
           target_.rows.contains(static_cast<std::int64_t>(id));
  }

  /// Adds a row that the target wants; one that comes again replaces the one before. Hands the rows
  /// over when they are many.
  void add(rowfile::RowId id, const std::byte* packed);

  /// Hands over what there is and gives its memory back. Returns the bytes handed over since the
  /// last flush.
  std::int64_t flush();

 private:
  void hand_over();
  void sort();
  void write_item(const RowTarget::Item& item);

  const StoredTable& table_;
  const RowStream& stream_;
  const RowTarget& target_;
  std::int64_t row_bytes_;
  bool meets_ = false;
  RowState* whole_ = nullptr;  ///< takes packed rows as they are
  std::vector<std::int64_t> rows_;
  std::vector<std::byte> packed_;
  std::vector<std::byte> item_;
  std::int64_t handed_over_ = 0;  ///< bytes
};

}  // namespace weft::checkpoint
