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

}  // namespace weft::bench
