#include "weft/tensor/host_block.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "weft/tensor/host_memory.h"

namespace weft {
namespace {

constexpr std::int64_t kLine = 64;
constexpr std::int64_t kHugePage = std::int64_t{2} << 20;

std::int64_t round_up(std::int64_t bytes, std::int64_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

}  // namespace

HostArena::~HostArena() {
  for (const Chunk& chunk : chunks_) {
    deallocate_host(chunk.data, chunk.bytes, chunk.bytes - round_up(chunk.used, kHugePage));
  }
}

void* HostArena::allocate(std::int64_t bytes) {
  constexpr std::int64_t kSmallest = kHugePage;
  constexpr std::int64_t kLargest = 16 * kHugePage;
  const std::int64_t rounded = round_up(bytes, kLine);
  if (chunks_.empty() || chunks_.back().bytes - chunks_.back().used < rounded) {
    const std::int64_t next =
        chunks_.empty() ? kSmallest : std::min(kLargest, 2 * chunks_.back().bytes);
    const std::int64_t size = round_up(std::max(next, rounded), kHugePage);
    chunks_.push_back({allocate_host(size, size), size, 0});
  }
  Chunk& chunk = chunks_.back();
  void* const data = static_cast<std::byte*>(chunk.data) + chunk.used;
  count_idle_as_used(round_up(chunk.used + rounded, kHugePage) - round_up(chunk.used, kHugePage));
  chunk.used += rounded;
  return data;
}

HostBlock::~HostBlock() {
  if (arena_ == nullptr) {
    deallocate_host(data_, bytes_);
  }
}

HostBlock::HostBlock(HostBlock&& other) noexcept
    : arena_(other.arena_),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {
}

HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
  std::swap(arena_, other.arena_);
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void* HostBlock::at_least(std::int64_t bytes) {
  if (bytes <= bytes_) {
    return data_;
  }
  if (arena_ != nullptr) {
    bytes_ = std::max(bytes, bytes_ + bytes_ / 2);
    data_ = arena_->allocate(bytes_);
  } else {
    deallocate_host(std::exchange(data_, nullptr), std::exchange(bytes_, 0));
    data_ = allocate_host(bytes);
    bytes_ = bytes;
  }
  return data_;
}

}  // namespace weft
