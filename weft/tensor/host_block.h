/// Host memory of one owner: pieces that grow to what is asked for and then stay.
#pragma once

#include <cstdint>
#include <vector>

namespace weft {

/// Memory that many blocks of one owner share, so that they lie on huge pages although each is
/// smaller than one: 2 MiB first, then twice as much each time, up to 32 MiB at once. Nothing is
/// given back before the arena goes. Not thread-safe. Throws Error(kResource) where the memory is
/// not to be had.
class HostArena {
 public:
  HostArena() = default;
  ~HostArena();
  HostArena(const HostArena&) = delete;
  HostArena& operator=(const HostArena&) = delete;

  /// On cache lines.
  void* allocate(std::int64_t bytes);

 private:
  struct Chunk {
    void* data = nullptr;
    std::int64_t bytes = 0;
    std::int64_t used = 0;
  };

  std::vector<Chunk> chunks_;
};

/// One piece, from an arena or by itself; then aligned as Device::allocate on a CPU: to cache
/// lines, and to huge pages from 2 MiB on. Not thread-safe. Errors: as above.
class HostBlock {
 public:
  HostBlock() = default;

  /// The arena outlives it.
  explicit HostBlock(HostArena& arena) : arena_(&arena) {}

  ~HostBlock();
  HostBlock(HostBlock&& other) noexcept;
  HostBlock& operator=(HostBlock&& other) noexcept;

  /// At least `bytes`; what lay there is lost when it grows. In an arena what it leaves is not used
  /// again, so it grows by half at least.
  void* at_least(std::int64_t bytes);

  /// Makes room for at least `count` elements of T, as at_least() does.
  template <typename T>
  T* at_least_of(std::int64_t count) {
    return static_cast<T*>(at_least(count * static_cast<std::int64_t>(sizeof(T))));
  }

  [[nodiscard]] void* data() const { return data_; }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  HostArena* arena_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace weft
