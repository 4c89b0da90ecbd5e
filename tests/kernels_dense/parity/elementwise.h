// Cases of weft/kernels/elementwise.h: the same bits.
#pragma once

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/elementwise.h"

namespace weft::kernels::parity {

inline void expect_elementwise(Device& device) {
  Context ctx{.device = &device};
  Context host;
  const DType types[] = {DType::kFloat32, DType::kBFloat16};
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 15}, {2, 16}, {5, 17}, {4, 130}}) {
    for (const Layout& at : kLayouts) {
      for (const DType from : types) {
        for (const DType to : types) {
          Tested x(device, from, rows, cols, 1, at);
          Tested y(device, to, rows, cols, 2, {at.shift, at.padding});
          assign(ctx, {.from = x.device(), .to = y.device()});
          reference::assign(host, {.from = x.host(), .to = y.host()});
          y.expect_same("assign");
        }
        Tested x(device, from, rows, cols, 3, at);
        Tested y(device, from, rows, cols, 4, {at.shift, at.padding});
        add(ctx, {.from = x.device(), .to = y.device()});
        reference::add(host, {.from = x.host(), .to = y.host()});
        y.expect_same("add");
      }
    }
  }
}

inline void expect_concatenate(Device& device) {
  Context ctx{.device = &device};
  Context host;
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    for (const Layout& at : kLayouts) {
      TestedList parts;
      std::int64_t cols = 0;
      for (const std::int64_t width : {5, 1, 16, 33}) {
        parts.add(Tested(device, DType::kFloat32, 7, width, static_cast<unsigned>(width), at));
        cols += width;
      }
      Tested all(device, dtype, 7, cols, 1, at);
      concatenate(ctx, {.from = parts.device<const float>(), .to = all.device()});
      reference::concatenate(host, {.from = parts.host<const float>(), .to = all.host()});
      all.expect_same("concatenate");
      split(ctx, {.from = all.device(), .to = parts.device<float>()});
      reference::split(host, {.from = all.host(), .to = parts.host<float>()});
      parts.expect_same("split");
    }
  }
}

}  // namespace weft::kernels::parity
