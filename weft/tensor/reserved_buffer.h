/// ReservedBuffer: memory of a device that grows where it lies, so that who reads it need not stop.
#pragma once

#include <cstdint>

#include "weft/tensor/device.h"

namespace weft {

/// Owns addresses for `most` bytes on a device, of which the first capacity() are memory. Not
/// movable: what it holds is pointed to.
class ReservedBuffer {
 public:
  /// Reserves addresses and takes no memory. Throws Error(kResource) where there are none.
  ReservedBuffer(Device& device, std::int64_t most);
  ~ReservedBuffer();
  ReservedBuffer(const ReservedBuffer&) = delete;
  ReservedBuffer& operator=(const ReservedBuffer&) = delete;

  /// Has at least `bytes` afterwards, at most what was reserved; those before stay as they are, new
  /// ones are not initialised. Takes an eighth more than it had, and whole units of kReservedUnit.
  /// Others may use the bytes before meanwhile. Throws Error(kResource).
  void grow(std::int64_t bytes);

  /// Returns the memory as elements of T. Nothing checks the type.
  template <typename T>
  [[nodiscard]] T* as() const {
    return static_cast<T*>(data_);
  }

  /// Bytes that are memory.
  [[nodiscard]] std::int64_t capacity() const { return capacity_; }

 private:
  Device& device_;
  std::int64_t most_;  ///< a multiple of the unit
  void* data_ = nullptr;
  std::int64_t capacity_ = 0;
};

}  // namespace weft
