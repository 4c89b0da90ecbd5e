// Cases of weft/kernels/cross.h. In bf16 h, dh and du are rounded, so what follows them has the
// bound of bf16.
#pragma once

#include "tests/kernels_dense/parity/linear.h"
#include "weft/kernels/cross.h"

namespace weft::kernels::parity {

struct CrossCase {
  std::int64_t m;
  std::int64_t d;
  std::int64_t r;
};

inline void expect_cross_forward(Device& device, const CrossCase& one, DType dtype, Layout at) {
  SCOPED_TRACE(fmt::format("{} samples, {} by {}, of {}", one.m, one.d, one.r, to_string(dtype)));
  Context ctx{.device = &device};
  Context host;
  const TestedWeights weights(ctx, dtype,
                              {{.in = one.d, .out = one.r}, {.in = one.r, .out = one.d}});
  const CrossLayer layer{weights.workspace.get(), weights.device.get(), 0, 1};
  const CrossLayer plain{nullptr, weights.host.get(), 0, 1};
  Tested bias(device, DType::kFloat32, 1, one.d, 1);
  Tested x0(device, dtype, one.m, one.d, 2, at);
  Tested x(device, dtype, one.m, one.d, 3, at);
  Tested h(device, dtype, one.m, one.r, 4);
  Tested u(device, dtype, one.m, one.d, 5, at);
  Tested y(device, dtype, one.m, one.d, 6, at);
  cross_forward(ctx, {.layer = layer,
                      .bias = bias.device_floats().data,
                      .x0 = x0.device(),
                      .x = x.device(),
                      .h = h.device(),
                      .u = u.device(),
                      .y = y.device()});
  reference::cross_forward(host, {.layer = plain,
                                  .bias = bias.host_floats().data,
                                  .x0 = x0.host(),
                                  .x = x.host(),
                                  .h = h.host(),
                                  .u = u.host(),
                                  .y = y.host()});
  const double bound = 8.0 * sum_bound(one.d + one.r, dtype);
  h.expect_same("h", bound);
  u.expect_same("u", bound);
  y.expect_same("y", bound);
}

inline void expect_cross_backward(
    Device& device, const CrossCase& one, DType dtype, Layout at, CrossSum sum) {
  SCOPED_TRACE(fmt::format("{} samples, {} by {}, of {}", one.m, one.d, one.r, to_string(dtype)));
  Context ctx{.device = &device};
  Context host;
  const TestedWeights weights(ctx, dtype,
                              {{.in = one.d, .out = one.r}, {.in = one.r, .out = one.d}});
  Tested x0(device, dtype, one.m, one.d, 2, at);
  Tested x(device, dtype, one.m, one.d, 3, at);
  Tested h(device, dtype, one.m, one.r, 4);
  Tested u(device, dtype, one.m, one.d, 5, at);
  Tested dy(device, dtype, one.m, one.d, 6, at);
  Tested du(device, dtype, one.m, one.d, 7);
  Tested dx0(device, dtype, one.m, one.d, 8, at);
  Tested dh(device, dtype, one.m, one.r, 9);
  Tested dv(device, dtype, one.m, one.d, 10, at);
  Tested dbias(device, DType::kFloat32, 1, one.d, 11);
  const Buffer v_memory(device,
                        gradient_operands_bytes(ctx, dtype, one.m, {.in = one.d, .out = one.r}));
  const Buffer w_memory(device,
                        gradient_operands_bytes(ctx, dtype, one.m, {.in = one.r, .out = one.d}));
  const auto v_kept = make_gradient_operands(ctx);
  const auto w_kept = make_gradient_operands(ctx);
  v_kept->lie_at(v_memory.as<void>(), v_memory.bytes());
  w_kept->lie_at(w_memory.as<void>(), w_memory.bytes());
  const auto v_plain = reference::make_gradient_operands(host);
  const auto w_plain = reference::make_gradient_operands(host);
  const bool more = sum == CrossSum::kAdd;
  cross_backward(ctx, {.layer = {weights.workspace.get(), weights.device.get(), 0, 1},
                       .x0 = x0.device(),
                       .x = x.device(),
                       .h = h.device(),
                       .u = u.device(),
                       .more = more ? ConstOperand(dv.device()) : ConstOperand{},
                       .dy = dy.device(),
                       .du = du.device(),
                       .dx0 = dx0.device(),
                       .dh = dh.device(),
                       .dv = dv.device(),
                       .sum = sum,
                       .dbias = dbias.device_floats().data,
                       .v_operands = v_kept.get(),
                       .w_operands = w_kept.get()});
  reference::cross_backward(host, {.layer = {nullptr, weights.host.get(), 0, 1},
                                   .x0 = x0.host(),
                                   .x = x.host(),
                                   .h = h.host(),
                                   .u = u.host(),
                                   .more = more ? ConstOperand(dv.host()) : ConstOperand{},
                                   .dy = dy.host(),
                                   .du = du.host(),
                                   .dx0 = dx0.host(),
                                   .dh = dh.host(),
                                   .dv = dv.host(),
                                   .sum = sum,
                                   .dbias = dbias.host_floats().data,
                                   .v_operands = v_plain.get(),
                                   .w_operands = w_plain.get()});
  dy.expect_same("dy");
  du.expect_same("du");
  dx0.expect_same("dx0");
  dbias.expect_same("dbias");
  const double growth = std::sqrt(static_cast<double>(one.d) / static_cast<double>(one.r));
  const double bound = 8.0 * growth * sum_bound(one.d + one.r, dtype);
  dh.expect_same("dh", bound);
  dv.expect_same("dv", bound);
}

inline void expect_cross(Device& device) {
  const std::vector<CrossCase> cases = {
      {1, 1, 1}, {3, 15, 2}, {2, 16, 16}, {5, 17, 3}, {33, 130, 24}};
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const CrossCase& one : cases) {
      for (const Layout& at : kLayouts) {
        expect_cross_forward(device, one, dtype, at);
        expect_cross_backward(device, one, dtype, at, CrossSum::kBegin);
        expect_cross_backward(device, one, dtype, at, CrossSum::kAdd);
      }
    }
  }
}

}  // namespace weft::kernels::parity
