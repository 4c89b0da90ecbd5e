// Cases of weft/kernels/dense_update.h: the same bits.
#pragma once

#include <limits>

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/dense_update.h"

namespace weft::kernels::parity {

inline void expect_scan(Device& device, std::int64_t count, const std::vector<std::int64_t>& bad) {
  SCOPED_TRACE(fmt::format("{} values", count));
  Context ctx{.device = &device, .pool = &device.pool()};
  Context host;
  Tested values(device, DType::kFloat32, 1, count, 1);
  for (const std::int64_t at : bad) {
    values.set(0, at,
               at % 2 == 0 ? std::numeric_limits<float>::quiet_NaN()
                           : std::numeric_limits<float>::infinity());
  }
  values.upload();
  const Buffer results(device,
                       scan_results(count) * static_cast<std::int64_t>(sizeof(GradientScan)));
  GradientScan found;
  GradientScan plain;
  scan_gradient(ctx, {.count = count,
                      .values = values.device_floats().data,
                      .results = results.as<GradientScan>()});
  device.copy_to_host(ctx, &found, results.as<void>(), sizeof found);
  reference::scan_gradient(
      host, {.count = count, .values = values.host_floats().data, .results = &plain});
  EXPECT_EQ(found.first_non_finite, plain.first_non_finite);
  EXPECT_EQ(plain.first_non_finite, bad.empty() ? -1 : bad.front());
  if (bad.empty()) {
    EXPECT_EQ(found.squares, plain.squares);
  }
}

inline void expect_update(Device& device, DenseRule rule, std::int64_t count) {
  SCOPED_TRACE(fmt::format("rule {}, {} weights", static_cast<int>(rule), count));
  Context ctx{.device = &device, .pool = &device.pool()};
  Context host;
  Tested grads(device, DType::kFloat32, 1, count, 1);
  Tested params(device, DType::kFloat32, 1, count, 2);
  Tested first(device, DType::kFloat32, 1, count, 3);
  Tested second(device, DType::kFloat32, 1, count, 4);
  for (std::int64_t i = 0; i < count; ++i) {  // sums of squares
    first.set(0, i,
              rule == DenseRule::kAdam ? first.host_floats().data[i]
                                       : std::abs(first.host_floats().data[i]));
    second.set(0, i, std::abs(second.host_floats().data[i]));
  }
  first.upload();
  second.upload();
  DenseUpdate update{.rule = rule,
                     .learning_rate = 0.05F,
                     .gradient_scale = 0.7F,
                     .weight_decay = 0.1F,
                     .eps = 1e-7F,
                     .beta1 = 0.9F,
                     .beta2 = 0.99F,
                     .bias_correction2 = 0.3F,
                     .count = count};
  const auto step = [&](const auto& of, auto& run, Context& in) {
    update.grads = of(grads).data;
    update.params = of(params).data;
    update.state0 = of(first).data;
    update.state1 = of(second).data;
    run(in, update);
  };
  for (int i = 0; i < 3; ++i) {
    step([](Tested& x) { return x.device_floats(); }, dense_update, ctx);
    step([](Tested& x) { return x.host_floats(); }, reference::dense_update, host);
  }
  params.expect_same("weights");
  first.expect_same("first state");
  second.expect_same("second state");
}

inline void expect_dense_update(Device& device) {
  for (const std::int64_t count :
       {1, 16, 37, 4096, 4097, 5 * 4096 + 77, 8 * 4096, 8 * 4096 + 1, 11 * 4096 + 77}) {
    expect_scan(device, count, {});
    expect_scan(device, count, {count - 1});
    expect_scan(device, count, {count / 2, count - 1});
    for (const DenseRule rule : {DenseRule::kSgd, DenseRule::kAdagrad, DenseRule::kAdam}) {
      expect_update(device, rule, count);
    }
  }
}

}  // namespace weft::kernels::parity
