/// Bytes of memory as the allocators count them (weft/tensor/memory_use.h): what blocks of given
/// sizes take from the system.
///
/// A block of 2 MiB or more is mapped by itself, in units of 64 KiB, from 16 MiB on of 2 MiB; a
/// smaller one counts what was asked for. Many blocks of one owner share an arena: memory of 2 MiB,
/// then twice as much each time up to 32 MiB, of which the huge pages count that blocks have had.
/// A block that grows takes half as much again as it had, or what it needs; one that may not move
/// leaves what it had.
/// Rules of Weft's own (weft/tensor/arena.cc, cpu_device.cc); tests compare them with the
/// objects. Pure values.
#pragma once

#include <cmath>
#include <cstddef>
#include <vector>

namespace weft::cost {

inline constexpr double kFloatBytes = 4.0;

/// The next whole number of units.
inline double round_up(double x, double unit) {
  return std::ceil(x / unit) * unit;
}

/// What a block of so many bytes counts for.
double block_bytes(double bytes);

/// Blocks of one owner, in the order in which they ask.
class ArenaMemory {
 public:
  /// Block `number` needs so many bytes: as ArenaBlock::at_least. Numbers are small.
  void need(std::size_t number, double bytes);

  /// What all of it counts for.
  [[nodiscard]] double counted_bytes() const;

 private:
  struct Chunk {
    double bytes = 0.0;
    double used = 0.0;
  };

  std::vector<double> blocks_;
  std::vector<Chunk> chunks_;
};

}  // namespace weft::cost
