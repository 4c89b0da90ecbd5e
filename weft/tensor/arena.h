/// Memory of a device that many pieces of one owner share.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/layout/blocks.h"
#include "weft/tensor/device.h"

namespace weft {

/// Memory of a device in large chunks (weft/layout/blocks.h), so that pieces lie on huge pages
/// although each is smaller than one. Nothing is given back before the arena goes. On the CPU
/// device what no piece has had does not count in memory_use.h. Not thread-safe. Throws
/// Error(kResource) where the memory is not to be had.
class Arena {
 public:
  /// The device outlives the arena.
  explicit Arena(Device& device) : device_(&device) {}

  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Takes the next `bytes`; they begin on a cache line.
  void* allocate(std::int64_t bytes);

 private:
  [[nodiscard]] bool counts_use() const { return device_->kind() == DeviceKind::kCpu; }

  Device* device_;
  layout::ArenaChunks chunks_;
  std::vector<void*> memory_;  ///< of each chunk
};

/// One piece of an arena, which outlives it. Not thread-safe.
class ArenaBlock {
 public:
  explicit ArenaBlock(Arena& arena) : arena_(&arena) {}

  /// At least `bytes`; what lay there is lost when it grows. What it leaves is not used again, so
  /// it grows by half at least. Errors: as Arena::allocate().
  void* at_least(std::int64_t bytes);

  /// Makes room for at least `count` elements of T, as at_least() does.
  template <typename T>
  T* at_least_of(std::int64_t count) {
    return static_cast<T*>(at_least(count * static_cast<std::int64_t>(sizeof(T))));
  }

  [[nodiscard]] void* data() const { return data_; }

 private:
  Arena* arena_;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace weft
