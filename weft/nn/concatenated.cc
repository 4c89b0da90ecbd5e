#include "weft/nn/concatenated.h"

#include "weft/kernels/elementwise.h"

namespace weft::nn {

using kernels::ConstOperand;
using kernels::Operand;

Concatenated::Concatenated(Builder& builder,
                           const spec::Model& options,
                           const ModelShape& shape,
                           std::int64_t field_dim,
                           DType dtype)
    : dtype_(dtype),
      x_width_(options.bottom_mlp.empty() ? shape.dense : options.bottom_mlp.back()),
      width_(x_width_),
      slot_(builder.add_slot()) {
  if (!options.bottom_mlp.empty()) {
    bottom_ = Mlp(builder, shape.dense, hidden_layers("dense.bottom", options.bottom_mlp));
  }
  features_ = FeatureVectors(builder, options, shape, field_dim);
  for (const FeatureShape& feature : shape.features) {
    width_ += field_dim > 0 ? field_dim : feature.dim;
  }
}

Operand Concatenated::forward(const Weights& weights,
                              const SliceInput& input,
                              ModelLane& lane) const {
  const Operand all = values(input, lane);
  const Operand x = all.slice_cols(0, x_width_);
  if (has_bottom()) {
    bottom_.forward(weights, lane, input.dense, x);
  } else if (x_width_ > 0) {
    kernels::assign(*lane.ctx, {.from = input.dense, .to = x});
  }
  features_.forward(weights, input, lane);
  kernels::concatenate(*lane.ctx, {.from = lane.fields, .to = all.slice_cols(x_width_, width_)});
  return all;
}

Operand Concatenated::values(const SliceInput& input, ModelLane& lane) const {
  return lane.get(slot_, dtype_, input.size, width_);
}

void Concatenated::split_gradients(const SliceInput& input,
                                   ModelLane& lane,
                                   const ConstOperand& dvalues,
                                   SliceGradients& gradients) const {
  features_.place_gradients(input, lane, gradients);
  kernels::split(*lane.ctx, {.from = dvalues.slice_cols(x_width_, width_), .to = lane.dfields});
}

void Concatenated::backward(const Weights& weights,
                            const SliceInput& input,
                            ModelTerms& terms,
                            ModelLane& lane,
                            const Operand& dvalues,
                            SliceGradients& gradients) const {
  features_.backward(weights, input, terms, lane, gradients);
  if (has_bottom()) {
    bottom_.backward(weights, terms, lane,
                     {input.dense,
                      values(input, lane).slice_cols(0, x_width_),
                      dvalues.slice_cols(0, x_width_),
                      {}});
  }
}

}  // namespace weft::nn
