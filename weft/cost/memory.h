/// Bytes of memory as the allocators count them (weft/tensor/memory_use.h): what blocks of given
/// sizes take from the system.
///
/// The rules are those of weft/layout/blocks.h; tests compare them with the objects. Pure values.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/layout/blocks.h"

namespace weft::cost {

inline constexpr double kFloatBytes = 4.0;

/// The next whole number of units.
inline double round_up(double x, double unit) {
  return std::ceil(x / unit) * unit;
}

using layout::block_bytes;

/// Blocks of one owner, in the order in which they ask.
class ArenaMemory {
 public:
  /// Block `number` needs so many bytes: as ArenaBlock::at_least. Numbers are small.
  void need(std::size_t number, double bytes);

  /// What all of it counts for.
  [[nodiscard]] double counted_bytes() const;

 private:
  std::vector<std::int64_t> blocks_;
  layout::ArenaChunks chunks_;
};

}  // namespace weft::cost
