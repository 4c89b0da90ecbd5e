/// What memory takes from the system: single blocks, buffers that grow, and arenas that many blocks
/// share. weft/tensor allocates by these rules and the planner predicts by them.
///
/// A block of 2 MiB or more is mapped by itself, in units of 64 KiB, and from 16 MiB on of 2 MiB; a
/// smaller one counts what was asked for. A buffer that grows takes at least an eighth more than it
/// had. Blocks of an arena share chunks of 2 MiB, then twice as much each time up to 32 MiB; of a
/// chunk the huge pages count that its blocks have had. A block of an arena that grows leaves what
/// it had, so it takes at least half as much again.
///
/// Plain values and pure functions; bytes everywhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace weft::layout {

inline constexpr std::int64_t kCacheLine = 64;
inline constexpr std::int64_t kHugePage = std::int64_t{2} << 20;  ///< of x86-64, and of arm64

/// A buffer that must grow takes at least its capacity and this part of it, so that batches that
/// get longer and longer cost few allocations.
inline constexpr double kBufferGrowth = 1.0 / 8.0;

/// The next multiple of `unit`.
constexpr std::int64_t round_up(std::int64_t value, std::int64_t unit) {
  return (value + unit - 1) / unit * unit;
}

/// Whether a block of so many bytes is mapped by itself.
constexpr bool is_mapped(std::int64_t bytes) {
  return bytes >= kHugePage;
}

/// What is mapped for a block of so many bytes. A large block ends on a huge page: what lay after
/// the last whole one would be in small pages, and in a table that is the optimizer's state.
std::int64_t mapped_bytes(std::int64_t bytes);

/// What a block of so many bytes counts for.
std::int64_t block_bytes(std::int64_t bytes);

/// The same of an expected number of bytes.
inline double block_bytes(double bytes) {
  return static_cast<double>(block_bytes(static_cast<std::int64_t>(std::ceil(bytes))));
}

/// The new capacity of a buffer that has `capacity` and needs `bytes`, which are more.
constexpr std::int64_t grown_capacity(std::int64_t bytes,
                                      std::int64_t capacity,
                                      double growth = kBufferGrowth) {
  return std::max(bytes,
                  capacity + static_cast<std::int64_t>(growth * static_cast<double>(capacity)));
}

/// The capacity that a buffer has after many batches that need `bytes` on average, none much more:
/// the first batch's length, and grown once when a longer one came.
constexpr double expected_capacity(double bytes, double growth = kBufferGrowth) {
  return (1.0 + growth) * bytes;
}

/// Where an arena has put a block.
struct ArenaPlace {
  std::size_t chunk = 0;
  std::int64_t offset = 0;  ///< in the chunk
};

/// The chunks of an arena and what of them is taken; the memory itself is the arena's.
class ArenaChunks {
 public:
  /// One piece of the arena's memory.
  struct Chunk {
    std::int64_t bytes = 0;
    std::int64_t used = 0;

    /// The huge pages that blocks have had.
    [[nodiscard]] std::int64_t counted_bytes() const { return round_up(used, kHugePage); }
  };

  /// Takes the next `bytes`, filled up to whole cache lines. A chunk with a number that was not
  /// there before is new, and the arena allocates it.
  ArenaPlace take(std::int64_t bytes);

  [[nodiscard]] const std::vector<Chunk>& chunks() const { return chunks_; }

  /// What all chunks count for.
  [[nodiscard]] std::int64_t counted_bytes() const;

 private:
  std::vector<Chunk> chunks_;
};

/// The new length of an arena's block that has `length` and needs `bytes`, which are more.
constexpr std::int64_t grown_block(std::int64_t bytes, std::int64_t length) {
  return std::max(bytes, length + length / 2);
}

}  // namespace weft::layout
