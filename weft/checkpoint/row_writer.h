/// Private to checkpoint/: writes the rows of a rank to segments, on several threads.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "weft/base/work_progress.h"
#include "weft/checkpoint/row_shard.h"
#include "weft/checkpoint/stored_rows.h"
#include "weft/io/file_system.h"

namespace weft::checkpoint {

/// Options of write_rows().
struct RowWriteOptions {
  std::string directory;  ///< of segments; exists
  std::string prefix;     ///< of their names, which do not exist
  std::int64_t rank = 0;
  std::int64_t first_number = 0;  ///< of the rank's files
  StateRows which = StateRows::kExisting;
  int writers = 1;                 ///< threads at most,
  std::int64_t writer_bytes = 1;   ///< one for each so many bytes
  std::int64_t segment_bytes = 0;  ///< a segment of more is closed, and another begun
  std::function<void()> check;     ///< called for each batch, from any thread: throws to end it all
};

/// What a rank has written.
struct WrittenRows {
  std::vector<SegmentFile> files;
  std::vector<std::int64_t> rows;  ///< of each shard

  /// Of all shards.
  [[nodiscard]] std::int64_t all_rows() const;
};

/// Writes the rows of all shards. A rank without any writes no file. All that is written is on the
/// disk when it returns, but for the names. After an error the files stay, to be removed by
/// whoever knows the prefix. Memory: per thread 3 MiB, 8 bytes per row of a segment. All shards
/// have cuts or none has. Cuts are emptied by the calling thread alone, copies of any of them
/// first, so that no update waits long for room.
WrittenRows write_rows(io::FileSystem& files,
                       const RowWriteOptions& options,
                       std::span<const RowShard> shards,
                       WorkProgress& progress);

}  // namespace weft::checkpoint
