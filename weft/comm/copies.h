/// Private to comm/: copying pieces, rows gathered and scattered on the way.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/thread_pool.h"
#include "weft/comm/collective.h"

namespace weft::comm {

/// Two pieces of the same number of bytes.
struct Copy {
  Piece from;
  Piece to;
};

/// Every byte once. Cut by size into tasks of the pool, which may be null; what is small is copied
/// by the caller. Throws Error(kUsage) where both ends have rows of different lengths.
void run_copies(ThreadPool* pool, std::span<const Copy> copies);

/// Copies lanes to others whose pieces agree in size, beginning with lane `first`; nothing where
/// one is silent, or pieces are the same memory. As run_copies(), but many small pieces are listed
/// nowhere, and some may have been copied where it throws. `copies` is memory for large ones.
/// O(lanes + pieces); also of lanes whose bytes are not known.
void copy_lanes(ThreadPool* pool,
                std::span<const Lane> from,
                std::span<const Lane> to,
                std::size_t first,
                std::vector<Copy>& copies);

/// Which end of a copy is the run.
enum class RunEnd : std::uint8_t { kFrom, kTo };

/// The pieces of a lane, and a run of their bytes.
struct LaneRun {
  std::span<const Piece> pieces;
  std::byte* run = nullptr;
  std::int64_t bytes = 0;  ///< of all pieces; 0 says that there is nothing to copy
};

/// Copies each lane to its run, or from it; nothing where a lane is that run. As copy_lanes().
void copy_runs(ThreadPool* pool,
               std::span<const LaneRun> lanes,
               RunEnd end,
               std::vector<Copy>& copies);

}  // namespace weft::comm
