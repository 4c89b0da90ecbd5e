#include "weft/tensor/arena.h"

#include <algorithm>
#include <cstddef>

#include "weft/tensor/host_memory.h"

namespace weft {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

Arena::~Arena() {
  for (const Chunk& chunk : chunks_) {
    if (counts_use()) {
      deallocate_host(chunk.data, chunk.bytes, chunk.bytes - round_up(chunk.used, kHugePage));
    } else {
      device_->deallocate(chunk.data, chunk.bytes);
    }
  }
}

void* Arena::allocate(std::int64_t bytes) {
  constexpr std::int64_t kSmallest = kHugePage;
  constexpr std::int64_t kLargest = 16 * kHugePage;
  const std::int64_t rounded = round_up(bytes, kLine);
  if (chunks_.empty() || chunks_.back().bytes - chunks_.back().used < rounded) {
    const std::int64_t next =
        chunks_.empty() ? kSmallest : std::min(kLargest, 2 * chunks_.back().bytes);
    const std::int64_t size = round_up(std::max(next, rounded), kHugePage);
    chunks_.push_back(
        {counts_use() ? allocate_host(size, size) : device_->allocate(size), size, 0});
  }
  Chunk& chunk = chunks_.back();
  void* const data = static_cast<std::byte*>(chunk.data) + chunk.used;
  if (counts_use()) {
    count_idle_as_used(round_up(chunk.used + rounded, kHugePage) - round_up(chunk.used, kHugePage));
  }
  chunk.used += rounded;
  return data;
}

void* ArenaBlock::at_least(std::int64_t bytes) {
  if (bytes > bytes_) {
    bytes_ = std::max(bytes, bytes_ + bytes_ / 2);
    data_ = arena_->allocate(bytes_);
  }
  return data_;
}

}  // namespace weft
