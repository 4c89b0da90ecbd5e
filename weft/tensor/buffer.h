/// Buffer: memory of a device that is reused from step to step.
#pragma once

#include <cstdint>
#include <span>
#include <utility>

#include "weft/layout/lengths.h"
#include "weft/tensor/device.h"

namespace weft {

/// Owns `capacity` bytes on a device; move-only. Growing discards the contents, and never happens
/// once the longest batch has been seen.
class Buffer {
 public:
  Buffer() = default;
  explicit Buffer(Device& device, std::int64_t bytes = 0);
  ~Buffer();

  Buffer(Buffer&& other) noexcept { swap(other); }

  Buffer& operator=(Buffer&& other) noexcept {
    swap(other);
    return *this;
  }

  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  /// At least `bytes` bytes; contents undefined when it grows, kept otherwise. Must not be called
  /// while a stream still uses the memory.
  void resize(std::int64_t bytes);

  /// Resizes to `count` elements of T, and returns the memory.
  template <typename T>
  T* resize_for(std::int64_t count) {
    resize(count * static_cast<std::int64_t>(sizeof(T)));
    return as<T>();
  }

  /// The same of a length that weft/layout has.
  template <typename T>
  T* resize_for(const layout::Array<T>& array) {
    return resize_for<T>(array.count);
  }

  /// Returns the memory as elements of T; null while the capacity is 0. Nothing checks the type.
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

  [[nodiscard]] std::int64_t bytes() const { return bytes_; }

  [[nodiscard]] std::int64_t capacity() const { return capacity_; }

  [[nodiscard]] Device* device() const { return device_; }

 private:
  void swap(Buffer& other) noexcept {
    std::swap(device_, other.device_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    std::swap(capacity_, other.capacity_);
  }

  Device* device_ = nullptr;
  void* data_ = nullptr;
  std::int64_t bytes_ = 0;
  std::int64_t capacity_ = 0;
};

}  // namespace weft
