// forward    h = x · Vᵀ;  u = h · Wᵀ + b;  y = x0 * u + x
// backward   dy += more, du = dy * x0, dx0 += dy * u in one pass;  dh = du · W;  dv = dh · V

#include "weft/kernels/cross.h"

#include "weft/kernels/cpu/elementwise.h"

namespace weft::kernels {
namespace {

LinearLayer layer_of(const CrossLayer& layer, std::size_t number) {
  return {.workspace = layer.workspace, .weights = layer.weights, .number = number};
}

template <typename T>
CrossElements<T> elements_of(const CrossForward& args) {
  return {.x0 = args.x0.as<T>(), .u = args.u.as<T>(), .x = args.x.as<T>(), .y = args.y.as<T>()};
}

template <typename T>
CrossGradients<T> gradients_of(const CrossBackward& args) {
  return {.x0 = args.x0.as<T>(),
          .u = args.u.as<T>(),
          .more = args.more.data == nullptr ? Matrix<const T>{} : args.more.as<T>(),
          .dy = args.dy.as<T>(),
          .du = args.du.as<T>(),
          .dx0 = args.dx0.as<T>(),
          .sum = args.sum};
}

}  // namespace

namespace cpu {

void cross_forward(Context& ctx, const CrossForward& args) {
  cpu::linear_forward(ctx, {.layer = layer_of(args.layer, args.layer.v), .x = args.x, .y = args.h});
  cpu::linear_forward(
      ctx,
      {.layer = layer_of(args.layer, args.layer.w), .bias = args.bias, .x = args.h, .y = args.u});
  if (args.y.dtype == DType::kFloat32) {
    cross_forward_elements(elements_of<float>(args));
  } else {
    cross_forward_elements(elements_of<BFloat16>(args));
  }
}

void cross_backward(Context& ctx, const CrossBackward& args) {
  if (args.dy.dtype == DType::kFloat32) {
    cross_backward_elements(gradients_of<float>(args));
  } else {
    cross_backward_elements(gradients_of<BFloat16>(args));
  }
  cpu::output_backward(ctx, {.epilogue = {.dbias = args.dbias}, .dy = args.du});
  cpu::keep_operands(ctx, {.dy = args.du, .x = args.h, .to = args.w_operands});
  cpu::linear_backward_inputs(
      ctx, {.layer = layer_of(args.layer, args.layer.w), .dy = args.du, .dx = args.dh});
  cpu::keep_operands(ctx, {.dy = args.dh, .x = args.x, .to = args.v_operands});
  cpu::linear_backward_inputs(
      ctx, {.layer = layer_of(args.layer, args.layer.v), .dy = args.dh, .dx = args.dv});
}

}  // namespace cpu
}  // namespace weft::kernels
