#include "tests/embedding/count_allocations.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<std::int64_t> allocations = 0;

}  // namespace

void* operator new(std::size_t bytes) {
  ++allocations;
  void* const data = std::malloc(bytes == 0 ? 1 : bytes);
  if (data == nullptr) {
    throw std::bad_alloc();
  }
  return data;
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  ++allocations;
  const auto unit = static_cast<std::size_t>(alignment);
  void* const data = std::aligned_alloc(unit, (bytes + unit - 1) / unit * unit + unit);
  if (data == nullptr) {
    throw std::bad_alloc();
  }
  return data;
}

void operator delete(void* data) noexcept {
  std::free(data);
}

void operator delete(void* data, std::align_val_t /*alignment*/) noexcept {
  std::free(data);
}

void operator delete(void* data, std::size_t /*bytes*/, std::align_val_t /*alignment*/) noexcept {
  std::free(data);
}

void operator delete(void* data, std::size_t /*bytes*/) noexcept {
  std::free(data);
}

namespace weft::embedding::test {

std::int64_t allocation_count() {
  return allocations;
}

}  // namespace weft::embedding::test
