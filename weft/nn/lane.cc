#include "weft/nn/lane.h"

#include "weft/layout/dense_memory.h"

namespace weft::nn {

ModelTerms::ModelTerms(Device& device, const layout::DenseModel& model)
    : model_(model), memory_(device) {
  Context ctx{.device = &device};
  for (std::size_t i = 0; i < model.layers().size(); ++i) {
    operands_.push_back(kernels::make_gradient_operands(ctx));
  }
}

void ModelTerms::begin(const layout::SliceSize& slice) {
  Context ctx{.device = memory_.device()};
  const DType dtype = kernels::dtype_of(model_.element());
  const auto length_of = [&](std::int64_t samples, const layout::LayerShape& shape) {
    return kernels::gradient_operands_bytes(ctx, dtype, samples, shape);
  };
  memory_.resize(layout::place_terms(model_, slice, length_of, begins_));
  auto* const memory = memory_.as<std::byte>();
  for (std::size_t i = 0; i < operands_.size(); ++i) {
    operands_[i]->lie_at(memory + begins_[i], begins_[i + 1] - begins_[i]);
  }
  bias_gradients_ = reinterpret_cast<float*>(memory + begins_.back());
}

ModelLane::ModelLane(Device& device, const layout::DenseModel& model)
    : model_(model), memory_(device) {
  Context own{.device = &device};
  workspace = kernels::make_workspace(own);
}

layout::SliceSize ModelLane::size_of(const SliceInput& input) {
  elements_.clear();
  for (const SequenceView& sequence : input.sequences) {
    elements_.push_back(sequence.values.rows);
  }
  return {.samples = input.size, .elements = elements_};
}

void ModelLane::begin(const SliceInput& input) {
  memory_.resize(layout::place_blocks(model_, size_of(input), begins_));
}

void ModelLane::reserve(const layout::SliceSize& most) {
  memory_.resize(layout::place_blocks(model_, most, begins_));
}

kernels::Operand ModelLane::get(std::size_t block,
                                layout::Element element,
                                std::int64_t rows,
                                std::int64_t cols) {
  if (element == layout::Element::kFp32) {
    return get<float>(block, rows, cols);
  }
  return get<BFloat16>(block, rows, cols);
}

}  // namespace weft::nn
