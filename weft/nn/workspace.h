// Internal: the memory of one part in flight.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/kernels/matmul.h"
#include "weft/nn/model.h"
#include "weft/tensor/view.h"

namespace weft::nn {

// Numbered pieces of memory. A layer takes its numbers from the Builder when the model is made, and
// asks for the memory with the size of the part at hand: it grows to the largest part and then
// stays, so what forward wrote is there in backward.
class PartWorkspace final : public Workspace {
 public:
  explicit PartWorkspace(std::size_t slots) : slots_(slots) {}

  // Uninitialised when it grows, else as it was left.
  template <typename T>
  T* get(std::size_t slot, std::int64_t count) {
    return static_cast<T*>(grow(slots_[slot], count * static_cast<std::int64_t>(sizeof(T))));
  }

  template <typename T>
  Matrix<T> get(std::size_t slot, std::int64_t rows, std::int64_t cols) {
    return matrix(get<T>(slot, rows * cols), rows, cols);
  }

  kernels::Matmul matmul;

  // Views rebuilt for every part; kept here for their capacity.
  std::vector<Matrix<const float>> vectors;  // per feature
  std::vector<Matrix<float>> dvectors;       // per feature
  std::vector<Matrix<const float>> fields;   // per field of an interaction
  std::vector<Matrix<float>> dfields;

 private:
  struct Free {
    void operator()(void* data) const;
  };

  struct Slot {
    std::unique_ptr<void, Free> data;
    std::int64_t bytes = 0;
  };

  static void* grow(Slot& slot, std::int64_t bytes);

  std::vector<Slot> slots_;
};

}  // namespace weft::nn
