/// Matrices of state as streams of rows, whoever stored them and in what pieces.
///
/// A tool walks over items and over the rows of an item, ascending, all columns joined, a few
/// megabytes at a time. How rows are stored is behind this: blocks of row ranges, of every n-th row
/// or of some columns, or rows by their numbers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/parts.h"
#include "weft/tensor/dtype.h"

namespace weft::checkpoint {

/// Which rows of an item are stored: all of them, or those that are listed; the others then have
/// their initial value.
enum class RowForm { kAll, kListed };

/// One logical matrix, and how much of it is stored.
struct ItemInfo {
  std::string parameter;
  std::string kind;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;  ///< of the whole matrix
  std::int64_t cols = 0;
  RowForm form = RowForm::kAll;
  std::int64_t stored_rows = 0;  ///< rows where `form` is kAll

  [[nodiscard]] std::int64_t row_bytes() const { return cols * size_of(dtype); }

  [[nodiscard]] std::int64_t stored_bytes() const { return stored_rows * row_bytes(); }
};

/// Some rows of an item. The memory is the stream's, until its next call.
struct StoredRows {
  std::span<const std::int64_t> ids;  ///< their numbers in the whole matrix, ascending
  std::span<const std::byte> bytes;   ///< [ids.size(), cols] of the item's dtype

  [[nodiscard]] std::int64_t size() const { return std::ssize(ids); }
};

/// The stored rows of an item, from the first to the last. Used by one thread.
class ItemRows {
 public:
  ItemRows() = default;
  virtual ~ItemRows() = default;
  ItemRows(const ItemRows&) = delete;
  ItemRows& operator=(const ItemRows&) = delete;

  /// Gives the next rows, one at least; false where there are none any more. Rows are handed out
  /// before all bytes under their checksum have been read, so whoever keeps something of them must
  /// throw it away where a later call throws; when false is returned all of them have been checked.
  /// Throws Error(kCheckpoint) naming file, offset, item and rows.
  virtual bool next(StoredRows& out) = 0;
};

/// All rows: every number there can be.
inline constexpr Range kAllRows{std::numeric_limits<std::int64_t>::min(),
                                std::numeric_limits<std::int64_t>::max()};

/// A checkpoint, or what stands for one. Streams must not outlive it. Constant calls may come from
/// several threads.
class ItemSource {
 public:
  ItemSource() = default;
  virtual ~ItemSource() = default;
  ItemSource(const ItemSource&) = delete;
  ItemSource& operator=(const ItemSource&) = delete;

  /// The items in their stored order. An item's place in the list is the `item` of other calls.
  [[nodiscard]] virtual const std::vector<ItemInfo>& items() const = 0;

  /// The stored rows of an item whose numbers lie in `rows`. A range reads its own bytes and, at
  /// either end, up to a chunk more of each block for the checksum.
  [[nodiscard]] virtual std::unique_ptr<ItemRows> open_rows(std::size_t item,
                                                            const Range& rows) const = 0;

  /// Calls visit(rows) for all stored rows of an item.
  void for_each_rows(std::size_t item, const std::function<void(const StoredRows&)>& visit) const {
    const std::unique_ptr<ItemRows> stream = open_rows(item, kAllRows);
    StoredRows rows;
    while (stream->next(rows)) {
      visit(rows);
    }
  }
};

}  // namespace weft::checkpoint
