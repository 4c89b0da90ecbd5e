#include "weft/nn/lane.h"

namespace weft::nn {

ModelTerms::ModelTerms(Device& device, std::size_t layers, std::int64_t biases)
    : memory_(device), biases_(biases), bias_gradients_(memory_) {
  Context ctx{.device = &device};
  for (std::size_t i = 0; i < layers; ++i) {
    operands_.push_back(kernels::make_gradient_operands(ctx, memory_));
  }
}

ModelLane::ModelLane(Device& device, std::size_t slots) : memory_(device) {
  Context own{.device = &device};
  workspace = kernels::make_workspace(own);
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
