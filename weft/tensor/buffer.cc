#include "weft/tensor/buffer.h"

#include "weft/base/error.h"
#include "weft/layout/blocks.h"

namespace weft {

Buffer::Buffer(Device& device, std::int64_t bytes) : device_(&device) {
  resize(bytes);
}

Buffer::~Buffer() {
  if (data_ != nullptr) {
    device_->deallocate(data_, capacity_);
  }
}

void Buffer::resize(std::int64_t bytes) {
  WEFT_CHECK(bytes >= 0, "a buffer of {} bytes", bytes);
  if (bytes > capacity_) {
    WEFT_CHECK(device_ != nullptr, "a buffer without a device cannot grow to {} bytes", bytes);
    // The old memory goes first: its contents are not kept, and both may not fit.
    const std::int64_t capacity =
        layout::grown_capacity(bytes, capacity_, device_->buffer_growth());
    if (data_ != nullptr) {
      device_->deallocate(data_, capacity_);
      data_ = nullptr;
      capacity_ = 0;
      bytes_ = 0;
    }
    data_ = device_->allocate(capacity);
    capacity_ = capacity;
  }
  bytes_ = bytes;
}

}  // namespace weft
