/// How fast this machine touches rows at random: the limit of lookups and of sparse updates.
///
/// A pass walks a list of rows in its order and touches every cache line of each: one 8-byte load
/// per line, and one store where the row is written. Nothing is computed, so what is left is
/// memory: misses, page walks, write-backs. A kernel can only be faster by touching fewer lines.
/// Rows are prefetched 0, 8 or 32 rows ahead, whichever is fastest. Every pass has a list of its
/// own: rows that the pass before has left in a cache would flatter.
/// Threads   the pool's, each with one run of the list.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

#include "weft/base/thread_pool.h"

namespace weft::bench {

enum class RowAccess { kGather, kGatherScatter };

/// Rows in memory that is 64-byte aligned. kGatherScatter changes the memory.
struct RowMemory {
  std::byte* base = nullptr;
  std::int64_t row_bytes = 0;
};

/// Gives the rows of the next pass, as bytes from base; valid until the next call. Rows that
/// kGatherScatter writes are all different, or those of piece(rows, threads, t) lie apart for
/// different t.
using NextRows = std::function<std::span<const std::int64_t>()>;

/// Median rows per second of a pass.
double row_rate(ThreadPool& pool,
                const RowMemory& memory,
                const NextRows& next,
                RowAccess access,
                double budget_s);

/// How rows of a list are touched: read, rewritten, or overwritten past the caches.
enum class Touch { kRead, kRewrite, kStream };

/// Rows in one memory, as bytes from base. Streamed rows begin on a line and are whole lines.
struct RowList {
  RowMemory memory;
  std::span<const std::int64_t> offsets;
  Touch touch = Touch::kRead;
  std::size_t every = 1;  ///< row i is touched at step i · every
};

/// One pass over the steps of the first list by the calling thread: of each list the row whose turn
/// it is, while those that are read `ahead` steps later are prefetched. Returns what keeps the
/// loads from being left out.
std::uint64_t touch_rows(std::span<const RowList> lists, std::size_t ahead);

}  // namespace weft::bench
