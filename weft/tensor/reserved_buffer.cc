#include "weft/tensor/reserved_buffer.h"

#include <algorithm>
#include <cstddef>

#include "weft/base/error.h"

namespace weft {
namespace {

constexpr std::int64_t whole_units(std::int64_t bytes) {
  return (bytes + kReservedUnit - 1) / kReservedUnit * kReservedUnit;
}

}  // namespace

ReservedBuffer::ReservedBuffer(Device& device, std::int64_t most)
    : device_(device), most_(whole_units(most)) {
  WEFT_CHECK(most >= 0, "{} reserved bytes", most);
  if (most_ > 0) {
    data_ = device.reserve(most_);
  }
}

ReservedBuffer::~ReservedBuffer() {
  if (data_ != nullptr) {
    device_.unreserve(data_, most_, capacity_);
  }
}

void ReservedBuffer::grow(std::int64_t bytes) {
  WEFT_CHECK(bytes <= most_, "{} of {} reserved bytes", bytes, most_);
  if (bytes <= capacity_) {
    return;
  }
  const std::int64_t to = std::min(most_, whole_units(std::max(bytes, capacity_ + capacity_ / 8)));
  device_.commit(static_cast<std::byte*>(data_) + capacity_, to - capacity_);
  capacity_ = to;
}

}  // namespace weft
