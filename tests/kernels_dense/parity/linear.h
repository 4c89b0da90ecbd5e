// Cases of weft/kernels/linear.h: sums within sum_bound(), masks and gradients of biases of equal
// operands to the bit.
#pragma once

#include <memory>

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/linear.h"

namespace weft::kernels::parity {

struct LinearCase {
  std::int64_t m;
  std::int64_t in;
  std::int64_t out;
};

inline const std::vector<LinearCase> kLinearCases = {
    {1, 1, 1},    {1, 3, 5},     {2, 17, 1},   {7, 5, 13},     {16, 16, 16},  {33, 64, 1},
    {31, 13, 65}, {33, 351, 17}, {64, 479, 3}, {250, 127, 33}, {9, 1100, 600}};

// Weights of several layers, prepared on the device and for the plain loops.
struct TestedWeights {
  TestedList weights;
  std::unique_ptr<Workspace> workspace;
  std::unique_ptr<PreparedWeights> device;
  std::unique_ptr<PreparedWeights> host;

  TestedWeights(Context& ctx, DType dtype, const std::vector<LinearShape>& shapes) {
    unsigned seed = 90;
    for (const LinearShape& shape : shapes) {
      Tested& w = weights.add(Tested(*ctx.device, DType::kFloat32, shape.out, shape.in, ++seed));
      w.scale(1.0F / std::sqrt(static_cast<float>(shape.in)));
    }
    Context plain;
    workspace = make_workspace(ctx);
    device = make_prepared_weights(ctx, dtype, shapes);
    host = reference::make_prepared_weights(plain, dtype, shapes);
    prepare_weights(ctx, {.weights = weights.device<const float>(), .to = device.get()});
    reference::prepare_weights(plain, {.weights = weights.host<const float>(), .to = host.get()});
  }

  [[nodiscard]] LinearLayer on_device(std::size_t number) const {
    return {.workspace = workspace.get(), .weights = device.get(), .number = number};
  }

  [[nodiscard]] LinearLayer on_host(std::size_t number) const {
    return {.workspace = nullptr, .weights = host.get(), .number = number};
  }
};

inline void expect_linear(Device& device, const LinearCase& one, DType dtype, Layout at) {
  SCOPED_TRACE(fmt::format("{} x {} x {} of {}, padding {}, shift {}", one.m, one.in, one.out,
                           to_string(dtype), at.padding, at.shift));
  Context ctx{.device = &device, .pool = &device.pool()};
  Context host;
  // Of two layers, so that numbers are told apart.
  const TestedWeights weights(ctx, dtype, {{.in = 3, .out = 2}, {.in = one.in, .out = one.out}});
  Tested bias(device, DType::kFloat32, 1, one.out, 1);
  Tested x(device, dtype, one.m, one.in, 2, at);
  for (const DType stored : {DType::kFloat32, dtype}) {
    for (const Activation activation : {Activation::kNone, Activation::kRelu}) {
      Tested y(device, stored, one.m, one.out, 3, at);
      const bool with_bias = activation == Activation::kRelu || stored == dtype;
      linear_forward(ctx, {.layer = weights.on_device(1),
                           .bias = with_bias ? bias.device_floats().data : nullptr,
                           .activation = activation,
                           .x = x.device(),
                           .y = y.device()});
      reference::linear_forward(host, {.layer = weights.on_host(1),
                                       .bias = with_bias ? bias.host_floats().data : nullptr,
                                       .activation = activation,
                                       .x = x.host(),
                                       .y = y.host()});
      y.expect_same("y", sum_bound(one.in, stored));

      Tested dy(device, dtype, one.m, one.out, 4, at);
      Tested dx(device, stored, one.m, one.in, 5, at);
      Tested below(device, stored, one.m, one.in, 6, at);
      Tested dbias(device, DType::kFloat32, 1, one.in, 7);
      GradientEpilogue epilogue{.activation = activation, .y = below.device()};
      GradientEpilogue plain{.activation = activation, .y = below.host()};
      if (with_bias) {
        epilogue.dbias = dbias.device_floats().data;
        plain.dbias = dbias.host_floats().data;
      }
      linear_backward_inputs(
          ctx,
          {.layer = weights.on_device(1), .dy = dy.device(), .dx = dx.device(), .below = epilogue});
      reference::linear_backward_inputs(
          host, {.layer = weights.on_host(1), .dy = dy.host(), .dx = dx.host(), .below = plain});
      const double growth = std::sqrt(static_cast<double>(one.out) / static_cast<double>(one.in));
      const double bound = sum_bound(one.out, stored) * std::max(1.0, growth);
      dx.expect_same("dx", bound);
      dbias.expect_same("dbias", bound * std::sqrt(static_cast<double>(one.m)));
    }
  }
}

inline void expect_output_backward(Device& device, DType dtype) {
  Context ctx{.device = &device};
  Context host;
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 15}, {37, 16}, {5, 17}, {512, 130}}) {
    for (const Layout& at : kLayouts) {
      Tested y(device, dtype, rows, cols, 1, at);
      y.set(0, 0, 0.0F);
      y.set(rows - 1, cols - 1, -0.0F);
      y.upload();
      Tested dy(device, dtype, rows, cols, 2, {at.shift, at.padding});
      Tested dbias(device, DType::kFloat32, 1, cols, 3);
      output_backward(ctx, {.epilogue = {.activation = Activation::kRelu,
                                         .y = y.device(),
                                         .dbias = dbias.device_floats().data},
                            .dy = dy.device()});
      reference::output_backward(host, {.epilogue = {.activation = Activation::kRelu,
                                                     .y = y.host(),
                                                     .dbias = dbias.host_floats().data},
                                        .dy = dy.host()});
      dy.expect_same("dy");
      dbias.expect_same("dbias");
    }
  }
}

inline void expect_linear(Device& device) {
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (std::size_t i = 0; i < kLinearCases.size(); ++i) {
      expect_linear(device, kLinearCases[i], dtype, {});
      expect_linear(device, kLinearCases[i], dtype, kLayouts[i % kLayouts.size()]);
    }
    expect_output_backward(device, dtype);
  }
}

}  // namespace weft::kernels::parity
