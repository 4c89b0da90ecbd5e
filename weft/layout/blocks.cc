#include "weft/layout/blocks.h"

namespace weft::layout {

std::int64_t mapped_bytes(std::int64_t bytes) {
  constexpr std::int64_t kMapUnit = std::int64_t{64} << 10;  // a multiple of every page size in use
  constexpr std::int64_t kLarge = 8 * kHugePage;             // an eighth more memory at most
  return round_up(bytes, bytes >= kLarge ? kHugePage : kMapUnit);
}

std::int64_t block_bytes(std::int64_t bytes) {
  return is_mapped(bytes) ? mapped_bytes(bytes) : bytes;
}

ArenaPlace ArenaChunks::take(std::int64_t bytes) {
  constexpr std::int64_t kLargest = 16 * kHugePage;
  const std::int64_t rounded = round_up(bytes, kCacheLine);
  if (chunks_.empty() || chunks_.back().bytes - chunks_.back().used < rounded) {
    const std::int64_t next =
        chunks_.empty() ? kHugePage : std::min(kLargest, 2 * chunks_.back().bytes);
    chunks_.push_back({.bytes = round_up(std::max(next, rounded), kHugePage)});
  }
  const ArenaPlace place{.chunk = chunks_.size() - 1, .offset = chunks_.back().used};
  chunks_.back().used += rounded;
  return place;
}

std::int64_t ArenaChunks::counted_bytes() const {
  std::int64_t bytes = 0;
  for (const Chunk& chunk : chunks_) {
    bytes += chunk.counted_bytes();
  }
  return bytes;
}

}  // namespace weft::layout
