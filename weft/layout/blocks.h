/// What memory takes from the system: blocks, and buffers that grow. weft/tensor allocates by these
/// rules and the planner predicts by them.
///
/// A block of 2 MiB or more is mapped by itself, in units of 64 KiB, and from 16 MiB on of 2 MiB; a
/// smaller one counts what was asked for. A buffer that grows takes at least an eighth more than it
/// had.
///
/// Plain values and pure functions; bytes everywhere.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

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

/// The new capacity of memory that grows where it lies (ReservedBuffer): it has `capacity`, needs
/// `bytes`, and may have `most`, a multiple of kHugePage. An eighth more than it had, whole units.
constexpr std::int64_t grown_reserved(std::int64_t bytes,
                                      std::int64_t capacity,
                                      std::int64_t most) {
  return bytes <= capacity
             ? capacity
             : std::min(most, round_up(std::max(bytes, capacity + capacity / 8), kHugePage));
}

/// What such memory has once it was grown to `bytes` of `most` bytes, a few at a time.
constexpr std::int64_t reserved_capacity(std::int64_t bytes, std::int64_t most) {
  std::int64_t capacity = 0;
  while (capacity < bytes) {
    capacity = grown_reserved(capacity + 1, capacity, round_up(most, kHugePage));
  }
  return capacity;
}

/// The capacity that a buffer has after many batches that need `bytes` on average, none much more:
/// the first batch's length, and grown once when a longer one came.
constexpr double expected_capacity(double bytes, double growth = kBufferGrowth) {
  return (1.0 + growth) * bytes;
}

}  // namespace weft::layout
