/// Host memory of one owner, which grows to what is asked for and then stays.
#pragma once

#include <cstdint>

namespace weft {

/// One piece of host memory, aligned as Device::allocate on a CPU: to cache lines, and to huge
/// pages from 2 MiB on. Not thread-safe. Throws Error(kResource) where the memory is not to be had.
class HostBlock {
 public:
  HostBlock() = default;

  ~HostBlock();
  HostBlock(HostBlock&& other) noexcept;
  HostBlock& operator=(HostBlock&& other) noexcept;

  /// At least `bytes`; what lay there is lost when it grows.
  void* at_least(std::int64_t bytes);

  /// Makes room for at least `count` elements of T, as at_least() does.
  template <typename T>
  T* at_least_of(std::int64_t count) {
    return static_cast<T*>(at_least(count * static_cast<std::int64_t>(sizeof(T))));
  }

  [[nodiscard]] void* data() const { return data_; }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

 private:
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
};

}  // namespace weft
