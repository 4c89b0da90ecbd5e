#include "weft/nn/lane.h"

namespace weft::nn {

ModelTerms::ModelTerms(std::size_t layers, std::int64_t biases)
    : bias_gradients_(static_cast<std::size_t>(biases)) {
  for (std::size_t i = 0; i < layers; ++i) {
    operands_.emplace_back(memory_);
  }
}

ModelLane::ModelLane(std::size_t slots) {
  for (std::size_t i = 0; i < slots; ++i) {
    slots_.emplace_back(memory_);
  }
}

kernels::Operand ModelLane::get(std::size_t slot,
                                DType dtype,
                                std::int64_t rows,
                                std::int64_t cols) {
  if (dtype == DType::kFloat32) {
    return get<float>(slot, rows, cols);
  }
  return get<BFloat16>(slot, rows, cols);
}

}  // namespace weft::nn
