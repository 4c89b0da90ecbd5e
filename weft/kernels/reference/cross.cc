#include "weft/kernels/cross.h"

#include "weft/kernels/reference/values.h"

namespace weft::kernels::reference {
namespace {

LinearLayer layer_of(const CrossLayer& layer, std::size_t number) {
  return {.workspace = nullptr, .weights = layer.weights, .number = number};
}

}  // namespace

void cross_forward(Context& ctx, const CrossForward& args) {
  reference::linear_forward(
      ctx, {.layer = layer_of(args.layer, args.layer.v), .x = args.x, .y = args.h});
  reference::linear_forward(
      ctx,
      {.layer = layer_of(args.layer, args.layer.w), .bias = args.bias, .x = args.h, .y = args.u});
  for_each(args.y.rows, args.y.cols, [&](std::int64_t i, std::int64_t j) {
    const float product = value_at(args.x0, i, j) * value_at(args.u, i, j);
    set_value(args.y, i, j, product + value_at(args.x, i, j));
  });
}

void cross_backward(Context& ctx, const CrossBackward& args) {
  for_each(args.dy.rows, args.dy.cols, [&](std::int64_t i, std::int64_t j) {
    float g = value_at(args.dy, i, j);
    if (args.more.data != nullptr) {
      g += value_at(args.more, i, j);
      set_value(args.dy, i, j, g);
    }
    const float through_u = g * value_at(args.u, i, j);
    set_value(args.dx0, i, j,
              args.sum == CrossSum::kBegin ? through_u : value_at(args.dx0, i, j) + through_u);
    set_value(args.du, i, j, g * value_at(args.x0, i, j));
  });
  reference::output_backward(ctx, {.epilogue = {.dbias = args.dbias}, .dy = args.du});
  reference::keep_operands(ctx, {.dy = args.du, .x = args.h, .to = args.w_operands});
  reference::linear_backward_inputs(
      ctx, {.layer = layer_of(args.layer, args.layer.w), .dy = args.du, .dx = args.dh});
  reference::keep_operands(ctx, {.dy = args.dh, .x = args.x, .to = args.v_operands});
  reference::linear_backward_inputs(
      ctx, {.layer = layer_of(args.layer, args.layer.v), .dy = args.dh, .dx = args.dv});
}

}  // namespace weft::kernels::reference
