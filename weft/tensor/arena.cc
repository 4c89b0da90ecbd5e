#include "weft/tensor/arena.h"

#include <cstddef>

#include "weft/tensor/host_memory.h"

namespace weft {

Arena::~Arena() {
  for (std::size_t i = 0; i < memory_.size(); ++i) {
    const layout::ArenaChunks::Chunk& chunk = chunks_.chunks()[i];
    if (counts_use()) {
      deallocate_host(memory_[i], chunk.bytes, chunk.bytes - chunk.counted_bytes());
    } else {
      device_->deallocate(memory_[i], chunk.bytes);
    }
  }
}

void* Arena::allocate(std::int64_t bytes) {
  const std::int64_t counted = chunks_.counted_bytes();
  const layout::ArenaPlace place = chunks_.take(bytes);
  while (memory_.size() <= place.chunk) {
    const std::int64_t size = chunks_.chunks()[memory_.size()].bytes;
    memory_.push_back(counts_use() ? allocate_host(size, size) : device_->allocate(size));
  }
  if (counts_use()) {
    count_idle_as_used(chunks_.counted_bytes() - counted);
  }
  return static_cast<std::byte*>(memory_[place.chunk]) + place.offset;
}

void* ArenaBlock::at_least(std::int64_t bytes) {
  if (bytes > bytes_) {
    bytes_ = layout::grown_block(bytes, bytes_);
    data_ = arena_->allocate(bytes_);
  }
  return data_;
}

}  // namespace weft
