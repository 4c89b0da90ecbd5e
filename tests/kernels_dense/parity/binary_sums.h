// Cases of weft/kernels/binary_sums.h: counts to the bit, sums within 1e-12.
#pragma once

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/binary_sums.h"

namespace weft::kernels::parity {

inline void expect_binary_sums(Device& device, std::int64_t tasks, Layout at) {
  constexpr std::int64_t kRows = 70;
  SCOPED_TRACE(fmt::format("{} tasks, padding {}", tasks, at.padding));
  Context ctx{.device = &device, .pool = &device.pool()};
  Context host;
  Tested logits(device, DType::kFloat32, kRows, tasks, 1, at);
  logits.scale(20.0F);
  Tested labels(device, DType::kFloat32, kRows, tasks, 2, at);
  Tested weights(device, DType::kFloat32, kRows, tasks, 3, at);
  for (std::int64_t s = 0; s < kRows; ++s) {
    for (std::int64_t t = 0; t < tasks; ++t) {
      labels.set(s, t, static_cast<float>((s + t) % 3) / 2.0F);
      weights.set(s, t, static_cast<float>(s % 4) / 2.0F);
    }
  }
  labels.upload();
  weights.upload();
  const std::vector<Range> parts = {{0, 17}, {17, 17}, {17, 18}, {18, kRows}};
  std::vector<BinaryTotals> expected(parts.size() * static_cast<std::size_t>(tasks));
  const DeviceArray<BinaryTotals> totals(device, std::vector<BinaryTotals>(expected.size()));
  sum_binary(ctx, {.logits = logits.device_floats(),
                   .labels = labels.device_floats(),
                   .weights = weights.device_floats(),
                   .parts = parts,
                   .totals = totals.data()});
  reference::sum_binary(host, {.logits = logits.host_floats(),
                               .labels = labels.host_floats(),
                               .weights = weights.host_floats(),
                               .parts = parts,
                               .totals = expected.data()});
  const std::vector<BinaryTotals> found = totals.read();
  const auto near = [](double x, double y) {
    EXPECT_NEAR(x, y, 1e-12 * std::max(1.0, std::abs(x)));
  };
  for (std::size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(expected[i].count, found[i].count);
    near(expected[i].weight, found[i].weight);
    near(expected[i].label, found[i].label);
    near(expected[i].loss, found[i].loss);
    near(expected[i].prediction, found[i].prediction);
  }
}

inline void expect_binary_sums(Device& device) {
  for (const std::int64_t tasks : {1, 2, 5}) {
    for (const Layout& at : kLayouts) {
      expect_binary_sums(device, tasks, at);
    }
  }
}

}  // namespace weft::kernels::parity
