#include "weft/tensor/host_block.h"

#include <utility>

#include "weft/tensor/host_memory.h"

namespace weft {

HostBlock::~HostBlock() {
  deallocate_host(data_, bytes_);
}

HostBlock::HostBlock(HostBlock&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {
}

HostBlock& HostBlock::operator=(HostBlock&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

void* HostBlock::at_least(std::int64_t bytes) {
  if (bytes <= bytes_) {
    return data_;
  }
  deallocate_host(std::exchange(data_, nullptr), std::exchange(bytes_, 0));
  data_ = allocate_host(bytes);
  bytes_ = bytes;
  return data_;
}

}  // namespace weft
