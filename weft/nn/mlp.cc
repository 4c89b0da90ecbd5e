#include "weft/nn/mlp.h"

#include "weft/kernels/elementwise.h"

namespace weft::nn {

using kernels::ConstOperand;
using kernels::Operand;

namespace {

kernels::Activation activation_of(const layout::LinearLayer& layer) {
  return layer.has_relu ? kernels::Activation::kRelu : kernels::Activation::kNone;
}

}  // namespace

ConstOperand Mlp::rounded_input(ModelLane& lane, const ConstOperand& x) const {
  return kernels::element_of(x.dtype) == model_.element()
             ? x
             : lane.get(chain_.input, model_.element(), x.rows, x.cols);
}

void Mlp::forward(const Weights& weights,
                  ModelLane& lane,
                  const ConstOperand& x,
                  const Operand& y) const {
  if (kernels::element_of(x.dtype) != model_.element()) {
    kernels::assign(*lane.ctx,
                    {.from = x, .to = lane.get(chain_.input, model_.element(), x.rows, x.cols)});
  }
  ConstOperand in = rounded_input(lane, x);
  for (std::size_t l = 0; l < size(); ++l) {
    const Operand out =
        l + 1 == size() ? y
                        : lane.get(chain_.blocks[l], model_.element(), x.rows, layer(l).shape.out);
    kernels::linear_forward(*lane.ctx, {.layer = lane.linear(weights, chain_.layers[l]),
                                        .bias = weights.bias(chain_.layers[l]),
                                        .activation = activation_of(layer(l)),
                                        .x = in,
                                        .y = out});
    in = out;
  }
}

kernels::GradientEpilogue Mlp::epilogue(std::size_t l,
                                        const ConstOperand& y,
                                        ModelTerms& terms) const {
  return {.activation = activation_of(layer(l)),
          .y = y,
          .dbias = terms.bias_gradient(chain_.layers[l])};
}

void Mlp::backward(const Weights& weights,
                   ModelTerms& terms,
                   ModelLane& lane,
                   const BackwardArguments& arguments) const {
  Context& ctx = *lane.ctx;
  const layout::Element element = model_.element();
  const std::int64_t rows = arguments.dy.rows;
  kernels::output_backward(
      ctx, {.epilogue = epilogue(size() - 1, arguments.y, terms), .dy = arguments.dy});
  Operand dy = arguments.dy;
  if (kernels::element_of(dy.dtype) != element || !dy.is_compact()) {
    dy = lane.get(layout::DenseModel::kGradients[0], element, rows, dy.cols);
    kernels::assign(ctx, {.from = arguments.dy, .to = dy});
  }
  for (std::size_t l = size(); l-- > 0;) {
    const std::size_t number = chain_.layers[l];
    kernels::GradientOperands* const operands = terms.operands(number);
    if (l == 0) {
      const ConstOperand x = rounded_input(lane, arguments.x);
      kernels::keep_operands(ctx, {.dy = dy, .x = x, .to = operands});
      if (arguments.dx.data != nullptr) {
        kernels::linear_backward_inputs(
            ctx,
            {.layer = lane.linear(weights, number), .dy = dy, .dx = arguments.dx, .below = {}});
      }
      return;
    }
    const std::int64_t width = layer(l).shape.in;
    const ConstOperand in = lane.get(chain_.blocks[l - 1], element, rows, width);
    kernels::keep_operands(ctx, {.dy = dy, .x = in, .to = operands});
    // dy of layer l may lie in block 0, so the layers below alternate from block 1.
    const std::size_t block = layout::DenseModel::kGradients[(size() - l) % 2];
    const Operand din = lane.get(block, element, rows, width);
    kernels::linear_backward_inputs(ctx, {.layer = lane.linear(weights, number),
                                          .dy = dy,
                                          .dx = din,
                                          .below = epilogue(l - 1, in, terms)});
    dy = din;
  }
}

}  // namespace weft::nn
