#include "weft/tensor/reserved_buffer.h"

#include <cstddef>

#include "weft/base/error.h"
#include "weft/layout/blocks.h"

namespace weft {
namespace {

static_assert(kReservedUnit == layout::kHugePage);

}  // namespace

ReservedBuffer::ReservedBuffer(Device& device, std::int64_t most)
    : device_(device), most_(layout::round_up(most, kReservedUnit)) {
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
  const std::int64_t to = layout::grown_reserved(bytes, capacity_, most_);
  device_.commit(static_cast<std::byte*>(data_) + capacity_, to - capacity_);
  capacity_ = to;
}

}  // namespace weft
