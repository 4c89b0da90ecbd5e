// Cases of weft/kernels/interaction.h: dots within 1e-5, the second-order term, in which squares
// cancel, within 1e-4.
#pragma once

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/interaction.h"

namespace weft::kernels::parity {

struct InteractionCase {
  std::int64_t samples;
  std::int64_t fields;
  std::int64_t dim;
};

inline const std::vector<InteractionCase> kInteractionCases = {
    {1, 2, 1}, {3, 2, 16}, {2, 5, 7}, {5, 9, 17}, {4, 27, 16}, {2, 27, 64}, {3, 6, 33}, {2, 1, 8}};

inline TestedList tested_fields(Device& device, const InteractionCase& one, unsigned seed) {
  TestedList fields;
  for (std::int64_t f = 0; f < one.fields; ++f) {
    fields.add(Tested(device, DType::kFloat32, one.samples, one.dim,
                      seed + static_cast<unsigned>(f),
                      kLayouts[static_cast<std::size_t>(f) % kLayouts.size()]));
  }
  return fields;
}

inline void expect_dots(Device& device, const InteractionCase& one) {
  SCOPED_TRACE(fmt::format("{} samples, {} fields of {}", one.samples, one.fields, one.dim));
  Context ctx{.device = &device};
  Context host;
  const Buffer scratch(device, dot_interaction_scratch(one.fields, one.dim) * 4);
  TestedList fields = tested_fields(device, one, 1);
  for (const Layout& at : kLayouts) {
    Tested out(device, DType::kFloat32, one.samples, num_pairs(one.fields), 50, at);
    dot_interaction_forward(ctx, {.fields = fields.device<const float>(),
                                  .out = out.device_floats(),
                                  .scratch = scratch.as<float>()});
    reference::dot_interaction_forward(
        host, {.fields = fields.host<const float>(), .out = out.host_floats()});
    out.expect_same("dots", 1e-5);
    for (const std::int64_t accumulate : {std::int64_t{0}, std::int64_t{1}, one.fields}) {
      TestedList dfields = tested_fields(device, one, 70);
      Tested dout(device, DType::kFloat32, one.samples, num_pairs(one.fields), 60, at);
      dot_interaction_backward(ctx, {.fields = fields.device<const float>(),
                                     .dout = dout.device_floats(),
                                     .dfields = dfields.device<float>(),
                                     .accumulate = accumulate,
                                     .scratch = scratch.as<float>()});
      reference::dot_interaction_backward(host, {.fields = fields.host<const float>(),
                                                 .dout = dout.host_floats(),
                                                 .dfields = dfields.host<float>(),
                                                 .accumulate = accumulate});
      dfields.expect_same("gradients", 1e-5);
    }
  }
}

inline void expect_factorization(Device& device, const InteractionCase& one) {
  SCOPED_TRACE(fmt::format("{} samples, {} fields of {}", one.samples, one.fields, one.dim));
  Context ctx{.device = &device};
  Context host;
  for (const Layout& at : kLayouts) {
    TestedList fields = tested_fields(device, one, 1);
    TestedList dfields = tested_fields(device, one, 70);
    Tested sums(device, DType::kFloat32, one.samples, one.dim, 40, at);
    Tested out(device, DType::kFloat32, 1, one.samples, 41);
    factorization_forward(ctx, {.fields = fields.device<const float>(),
                                .sums = sums.device_floats(),
                                .out = out.device_floats().data});
    reference::factorization_forward(host, {.fields = fields.host<const float>(),
                                            .sums = sums.host_floats(),
                                            .out = out.host_floats().data});
    sums.expect_same("sums", 1e-5);
    out.expect_same("second order", 1e-4);
    Tested dout(device, DType::kFloat32, 1, one.samples, 42);
    factorization_backward(ctx, {.fields = fields.device<const float>(),
                                 .sums = sums.device_floats(),
                                 .dout = dout.device_floats().data,
                                 .dfields = dfields.device<float>()});
    reference::factorization_backward(host, {.fields = fields.host<const float>(),
                                             .sums = sums.host_floats(),
                                             .dout = dout.host_floats().data,
                                             .dfields = dfields.host<float>()});
    dfields.expect_same("gradients", 1e-5);
  }
}

inline void expect_interactions(Device& device) {
  for (const InteractionCase& one : kInteractionCases) {
    expect_dots(device, one);
    expect_factorization(device, one);
  }
}

}  // namespace weft::kernels::parity
