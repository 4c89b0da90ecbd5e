/// Private to checkpoint/: the files below rows of this rank, and the names that a save gives them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/base/work_progress.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/row_writer.h"
#include "weft/checkpoint/save_plan.h"
#include "weft/io/file_system.h"
#include "weft/tensor/row_files.h"

namespace weft::checkpoint {

/// Seals of the files below the rows that this rank saves, of which those are linked that have no
/// other rows. In this order: made, so that none of their rows moves; rows listed or cut off that
/// are not in files; begin(); wait(). A row that leaves memory meanwhile is in both.
class LinkedRows {
 public:
  /// Says in each shard of the sources that are saved whether its files are linked. The sources
  /// outlive it.
  LinkedRows(SaveSources& sources, RowLinks links);

  /// Bytes of files that have come since the save before.
  [[nodiscard]] std::int64_t new_bytes() const;

  /// What is in files is that of now.
  void begin();

  /// The next save counts what has come since begin().
  void mark();

  /// Returns the files to be linked, in their order, when they are on the disk. They stay as long
  /// as this. kExisting: all; kChanged: those that have come since the save before.
  std::vector<RowFile> wait(StateRows which);

 private:
  struct Sealed {
    RowFiles* files = nullptr;
    std::unique_ptr<RowSeal> seal;
    bool is_linked = false;
  };

  std::vector<Sealed> sealed_;
};

/// Which rows of a shard are to be written, where `which` (kExisting or kChanged) are saved.
StateRows rows_to_write(const RowShard& shard, StateRows which);

/// Gives the files names of segments in the directory: 0, 1, ... of the rank. One that the file
/// system does not link is copied. Adds to `saved`.
std::vector<SegmentFile> link_files(io::FileSystem& files,
                                    std::span<const RowFile> sealed,
                                    const RowWriteOptions& options,
                                    SavedRows& saved,
                                    WorkProgress& progress);

/// From now on saves count what comes into the files below rows as new. Each of them may come
/// several times.
void mark_files(std::span<RowFiles* const> files);

}  // namespace weft::checkpoint
