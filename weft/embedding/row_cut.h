/// ShardCut: the rows of a TableShard as they were between two steps.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "weft/embedding/row_marks.h"
#include "weft/tensor/row_cut.h"

namespace weft::embedding {

class ShardRows;

/// Rows leave the cut in one of two ways, each row once, whoever comes first:
///
///   take()           the saving thread reads them where they lie
///   before_change()  an update copies them, and take_copies() takes the copies
///
/// A mark per row says that it has not left. The lock is held while rows are read, so an update
/// waits for the batch that is read just now, and nothing is read that an update writes.
class ShardCut final : public RowCut {
 public:
  /// Cuts `rows` off, which are counted within the shard, of `row_bytes` bytes each when packed.
  /// The owner and the room outlive the cut.
  ShardCut(ShardRows& owner, RowMarks rows, std::int64_t row_bytes, CopyRoom& room);

  /// Tells the shard. An update that waits for room is waited for: CopyRoom::open() first.
  ~ShardCut() override;

  bool take_copies(Rows& rows) override;
  bool take(std::int64_t most, Rows& rows) override;

  /// Copies those of the rows, counted within the shard, that are still in the cut. Called by
  /// whoever is about to change them. Waits for room.
  void before_change(std::span<const std::int64_t> rows);

 private:
  void copy(std::span<const std::int64_t> rows);
  bool move_copies(Rows& rows);

  ShardRows& owner_;
  const std::int64_t row_bytes_;
  CopyRoom& room_;
  std::atomic<bool> is_empty_ = false;  ///< all rows have left
  std::mutex mutex_;
  RowMarks left_;                 ///< rows in the cut
  std::int64_t next_ = 0;         ///< where take() goes on
  std::int64_t taken_bytes_ = 0;  ///< copies that were taken last, and may still be held
  std::vector<std::int64_t> found_;
  Rows copies_;  ///< numbers of the whole table
};

}  // namespace weft::embedding
