#include "weft/nn/concatenated.h"

#include "weft/kernels/elementwise.h"

namespace weft::nn {

using kernels::ConstOperand;
using kernels::Operand;

Operand Concatenated::forward(const Weights& weights,
                              const SliceInput& input,
                              ModelLane& lane) const {
  const Operand all = values(input, lane);
  const Operand x = all.slice_cols(0, parts_.x_width);
  if (!parts_.bottom.empty()) {
    Mlp(model_, parts_.bottom).forward(weights, lane, input.dense, x);
  } else if (parts_.x_width > 0) {
    kernels::assign(*lane.ctx, {.from = input.dense, .to = x});
  }
  vectors().forward(weights, input, lane);
  kernels::concatenate(*lane.ctx,
                       {.from = lane.fields, .to = all.slice_cols(parts_.x_width, parts_.width)});
  return all;
}

Operand Concatenated::values(const SliceInput& input, ModelLane& lane) const {
  return lane.get(parts_.values, parts_.element, input.size, parts_.width);
}

void Concatenated::split_gradients(const SliceInput& input,
                                   ModelLane& lane,
                                   const ConstOperand& dvalues,
                                   SliceGradients& gradients) const {
  vectors().place_gradients(input, lane, gradients);
  kernels::split(*lane.ctx,
                 {.from = dvalues.slice_cols(parts_.x_width, parts_.width), .to = lane.dfields});
}

void Concatenated::backward(const Weights& weights,
                            const SliceInput& input,
                            ModelTerms& terms,
                            ModelLane& lane,
                            const Operand& dvalues,
                            SliceGradients& gradients) const {
  vectors().backward(weights, input, terms, lane, gradients);
  if (!parts_.bottom.empty()) {
    Mlp(model_, parts_.bottom)
        .backward(weights, terms, lane,
                  {input.dense,
                   values(input, lane).slice_cols(0, parts_.x_width),
                   dvalues.slice_cols(0, parts_.x_width),
                   {}});
  }
}

}  // namespace weft::nn
