// Cases of weft/kernels/sequence.h: the same bits, but for the dots, which are within 1e-5.
#pragma once

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels::parity {

inline void expect_sequence(Device& device,
                            const std::vector<std::int64_t>& offsets,
                            std::int64_t dim,
                            Layout at) {
  SCOPED_TRACE(fmt::format("{} elements of {}", offsets.back(), dim));
  Context ctx{.device = &device};
  Context host;
  const auto b = static_cast<std::int64_t>(offsets.size()) - 1;
  const std::int64_t n = offsets.back();
  const std::int64_t rows = n + 2;
  const DeviceArray<std::int64_t> on_device(device, offsets);
  const auto tested = [&](std::int64_t count, std::int64_t cols, unsigned seed) {
    return Tested(device, DType::kFloat32, count, cols, seed, at);
  };
  Tested e = tested(n, dim, 1);
  Tested t = tested(b, dim, 2);
  Tested a(device, DType::kFloat32, 1, rows, 3);
  Tested dout = tested(b, dim, 4);
  Tested g = tested(rows, 4 * dim, 5);
  const Sequences all{e.device_floats(), on_device.data(), b};
  const Sequences plain{e.host_floats(), offsets.data(), b};

  Tested inputs = tested(rows, 4 * dim, 6);
  attention_inputs(
      ctx, {.sequences = all, .target = t.device_floats(), .inputs = inputs.device_floats()});
  reference::attention_inputs(
      host, {.sequences = plain, .target = t.host_floats(), .inputs = inputs.host_floats()});
  inputs.expect_same("inputs");
  Tested out = tested(b, dim, 7);
  attention_pool(ctx,
                 {.sequences = all, .weights = a.device_floats().data, .out = out.device_floats()});
  reference::attention_pool(
      host, {.sequences = plain, .weights = a.host_floats().data, .out = out.host_floats()});
  out.expect_same("pooled");
  Tested da(device, DType::kFloat32, 1, rows, 8);
  attention_weights_backward(ctx, {.sequences = all,
                                   .dout = dout.device_floats(),
                                   .dweights = da.device_floats().data,
                                   .rows = rows});
  reference::attention_weights_backward(host, {.sequences = plain,
                                               .dout = dout.host_floats(),
                                               .dweights = da.host_floats().data,
                                               .rows = rows});
  da.expect_same("dweights", 1e-5);
  Tested de = tested(n, dim, 9);
  Tested dt = tested(b, dim, 10);
  attention_backward(ctx, {.sequences = all,
                           .target = t.device_floats(),
                           .weights = a.device_floats().data,
                           .dout = dout.device_floats(),
                           .dinputs = g.device_floats(),
                           .dvalues = de.device_floats(),
                           .dtarget = dt.device_floats()});
  reference::attention_backward(host, {.sequences = plain,
                                       .target = t.host_floats(),
                                       .weights = a.host_floats().data,
                                       .dout = dout.host_floats(),
                                       .dinputs = g.host_floats(),
                                       .dvalues = de.host_floats(),
                                       .dtarget = dt.host_floats()});
  de.expect_same("dvalues");
  dt.expect_same("dtarget");
  sequence_mean_forward(ctx, {.sequences = all, .out = out.device_floats()});
  reference::sequence_mean_forward(host, {.sequences = plain, .out = out.host_floats()});
  out.expect_same("mean");
  sequence_mean_backward(
      ctx, {.sequences = all, .dout = dout.device_floats(), .dvalues = de.device_floats()});
  reference::sequence_mean_backward(
      host, {.sequences = plain, .dout = dout.host_floats(), .dvalues = de.host_floats()});
  de.expect_same("dvalues of the mean");
}

inline void expect_sequences(Device& device) {
  for (const auto& offsets : std::vector<std::vector<std::int64_t>>{
           {0, 0, 3, 4, 4, 11}, {0, 1}, {0, 0}, {0, 40, 40, 47}}) {
    for (const std::int64_t dim : {1, 5, 16, 19, 48}) {
      for (const Layout& at : kLayouts) {
        expect_sequence(device, offsets, dim, at);
      }
    }
  }
}

}  // namespace weft::kernels::parity
