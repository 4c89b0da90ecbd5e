#include "weft/nn/mlp.h"

#include <fmt/core.h>

#include "weft/kernels/elementwise.h"

namespace weft::nn {

using kernels::ConstOperand;
using kernels::Operand;

std::vector<LayerSpec> hidden_layers(const std::string& name,
                                     const std::vector<std::int64_t>& widths) {
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    layers.push_back({fmt::format("{}.{}", name, i), widths[i], kernels::Activation::kRelu});
  }
  return layers;
}

Mlp::Mlp(Builder& builder, std::int64_t in, const std::vector<LayerSpec>& layers)
    : dtype_(builder.dtype()) {
  for (const LayerSpec& spec : layers) {
    Layer layer;
    layer.number = builder.add_linear(spec.name, in, spec.out, spec.bias);
    const LinearLayer& linear = builder.layers()[layer.number];
    layer.out = spec.out;
    layer.bias = linear.bias;
    layer.bias_gradient = linear.bias_gradient;
    layer.activation = spec.activation;
    layer.slot = builder.add_slot();
    layers_.push_back(layer);
    in = spec.out;
  }
  input_slot_ = builder.add_slot();
}

ConstOperand Mlp::rounded_input(ModelLane& lane, const ConstOperand& x) const {
  return x.dtype == dtype_ ? x : lane.get(input_slot_, dtype_, x.rows, x.cols);
}

void Mlp::forward(const Weights& weights,
                  ModelLane& lane,
                  const ConstOperand& x,
                  const Operand& y) const {
  ConstOperand in = rounded_input(lane, x);
  if (x.dtype != dtype_) {
    kernels::assign(*lane.ctx, {.from = x, .to = lane.get(input_slot_, dtype_, x.rows, x.cols)});
  }
  for (const Layer& layer : layers_) {
    const Operand out =
        &layer == &layers_.back() ? y : lane.get(layer.slot, dtype_, x.rows, layer.out);
    kernels::linear_forward(*lane.ctx,
                            {.layer = lane.linear(weights, layer.number),
                             .bias = layer.bias < 0 ? nullptr : weights.flat + layer.bias,
                             .activation = layer.activation,
                             .x = in,
                             .y = out});
    in = out;
  }
}

kernels::GradientEpilogue Mlp::epilogue(const Layer& layer,
                                        const ConstOperand& y,
                                        ModelTerms& terms) {
  return {.activation = layer.activation,
          .y = y,
          .dbias = layer.bias < 0 ? nullptr : terms.bias_gradients() + layer.bias_gradient};
}

void Mlp::backward(const Weights& weights,
                   ModelTerms& terms,
                   ModelLane& lane,
                   const BackwardArguments& arguments) const {
  Context& ctx = *lane.ctx;
  const std::int64_t rows = arguments.dy.rows;
  kernels::output_backward(
      ctx, {.epilogue = epilogue(layers_.back(), arguments.y, terms), .dy = arguments.dy});
  Operand dy = arguments.dy;
  if (dy.dtype != dtype_ || !dy.is_compact()) {
    dy = lane.get(Builder::kGradientSlots[0], dtype_, rows, dy.cols);
    kernels::assign(ctx, {.from = arguments.dy, .to = dy});
  }
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    kernels::GradientOperands* const operands = terms.operands(layer.number);
    if (l == 0) {
      const ConstOperand x = rounded_input(lane, arguments.x);
      kernels::keep_operands(ctx, {.dy = dy, .x = x, .to = operands});
      if (arguments.dx.data != nullptr) {
        kernels::linear_backward_inputs(ctx, {.layer = lane.linear(weights, layer.number),
                                              .dy = dy,
                                              .dx = arguments.dx,
                                              .below = {}});
      }
      return;
    }
    const Layer& below = layers_[l - 1];
    const ConstOperand in = lane.get(below.slot, dtype_, rows, below.out);
    kernels::keep_operands(ctx, {.dy = dy, .x = in, .to = operands});
    // dy of layer l may lie in slot 0, so the layers below alternate from slot 1.
    const std::size_t slot = Builder::kGradientSlots[(layers_.size() - l) % 2];
    const Operand din = lane.get(slot, dtype_, rows, below.out);
    kernels::linear_backward_inputs(ctx, {.layer = lane.linear(weights, layer.number),
                                          .dy = dy,
                                          .dx = din,
                                          .below = epilogue(below, in, terms)});
    dy = din;
  }
}

}  // namespace weft::nn
