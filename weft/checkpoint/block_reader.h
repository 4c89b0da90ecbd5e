/// Private to checkpoint/: fills sinks with the blocks of a checkpoint's data files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/base/work_progress.h"
#include "weft/checkpoint/read_ahead.h"
#include "weft/tensor/state.h"

namespace weft::checkpoint {

/// An item of a sink that is stored in blocks.
struct BlockTarget {
  StateSink* sink = nullptr;
  std::size_t index = 0;  ///< in the sink
  StateItem item;
  std::size_t stored = 0;  ///< index into Manifest::items
};

/// The bytes that the targets hold.
std::int64_t bytes_to_read(const std::vector<BlockTarget>& targets);

/// Reads the chunks that have rows and columns of a target, checks each, and writes to the sinks,
/// one target after the other. Memory: a chunk for each thread, and one more. Throws
/// Error(kCheckpoint) naming file, offset and item.
void fill_blocks(const LoadSource& source,
                 const std::vector<BlockTarget>& targets,
                 WorkProgress& progress);

}  // namespace weft::checkpoint
