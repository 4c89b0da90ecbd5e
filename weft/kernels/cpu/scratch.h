/// Private to kernels/cpu: memory of a thread for the rows it works on.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace weft::kernels {

/// Cache-aligned floats that live as long as the thread and grow to the widest row it has seen. A
/// task uses them from beginning to end and calls nothing that uses them too.
class ThreadScratch {
 public:
  static float* get(std::int64_t floats) {
    thread_local ThreadScratch scratch;
    if (floats > scratch.size_) {
      scratch.memory_.reset(static_cast<float*>(::operator new(
          static_cast<std::size_t>(floats) * sizeof(float), std::align_val_t{kAlignment})));
      scratch.size_ = floats;
    }
    return scratch.memory_.get();
  }

 private:
  static constexpr std::size_t kAlignment = 64;

  struct Free {
    void operator()(float* data) const { ::operator delete(data, std::align_val_t{kAlignment}); }
  };

  std::unique_ptr<float, Free> memory_;
  std::int64_t size_ = 0;
};

}  // namespace weft::kernels
