// Cases of weft/kernels/loss.h and weft/kernels/finite.h: the same bits.
#pragma once

#include <limits>

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/finite.h"
#include "weft/kernels/loss.h"

namespace weft::kernels::parity {

inline void expect_loss(
    Device& device, std::int64_t rows, std::int64_t tasks, Layout at, std::int64_t bad) {
  SCOPED_TRACE(fmt::format("{} samples, {} tasks, bad at {}", rows, tasks, bad));
  Context ctx{.device = &device};
  Context host;
  Tested logits(device, DType::kFloat32, rows, tasks, 1, at);
  logits.scale(5.0F);
  if (bad >= 0) {
    logits.set(bad, tasks - 1, std::numeric_limits<float>::quiet_NaN());
    logits.set(rows - 1, 0, std::numeric_limits<float>::infinity());
    logits.upload();
  }
  Tested labels(device, DType::kFloat32, rows, tasks, 2, at);
  Tested weights(device, DType::kFloat32, rows, tasks, 3, at);
  Tested dlogits(device, DType::kFloat32, rows, tasks, 4, at);
  Tested probabilities(device, DType::kFloat32, rows, tasks, 5, at);
  const std::vector<float> scale(static_cast<std::size_t>(tasks), 0.37F);
  const DeviceArray<double> sums(device, std::vector<double>(scale.size(), 7.0));
  const DeviceArray<std::int64_t> first(device, {-7});
  std::vector<double> plain_sums(scale.size(), 9.0);
  std::int64_t plain_first = -9;
  for (const bool weighted : {false, true}) {
    bce_loss(ctx, {.logits = logits.device_floats(),
                   .labels = labels.device_floats(),
                   .weights = weighted ? weights.device_floats() : Matrix<float>{},
                   .scale = scale,
                   .dlogits = dlogits.device_floats(),
                   .probabilities = probabilities.device_floats(),
                   .loss_sums = sums.data(),
                   .first_bad = first.data()});
    reference::bce_loss(host, {.logits = logits.host_floats(),
                               .labels = labels.host_floats(),
                               .weights = weighted ? weights.host_floats() : Matrix<float>{},
                               .scale = scale,
                               .dlogits = dlogits.host_floats(),
                               .probabilities = probabilities.host_floats(),
                               .loss_sums = plain_sums.data(),
                               .first_bad = &plain_first});
    EXPECT_EQ(plain_first, bad);
    EXPECT_EQ(first.read()[0], plain_first);
    if (bad < 0) {
      dlogits.expect_same("dlogits");
      probabilities.expect_same("probabilities");
      EXPECT_EQ(sums.read(), plain_sums);
    }
  }
}

inline void expect_loss(Device& device) {
  for (const Layout& at : kLayouts) {
    for (const std::int64_t tasks : {1, 3}) {
      for (const std::int64_t rows : {1, 2, 17, 512}) {
        expect_loss(device, rows, tasks, at, -1);
        expect_loss(device, rows, tasks, at, rows / 2);
      }
    }
  }
}

// One value that is not finite among those of four samples, or none.
inline void expect_first_bad_sample(Device& device) {
  Context ctx{.device = &device};
  Context host;
  const std::vector<std::int64_t> offsets = {0, 3, 3, 4, 9};
  const DeviceArray<std::int64_t> on_device(device, offsets);
  for (const Layout& at : kLayouts) {
    for (const bool in_sequence : {false, true}) {
      for (std::int64_t bad = -1; bad < 9; ++bad) {
        for (const std::int64_t before : {-1, 0, 2}) {
          Tested rows(device, DType::kFloat32, 4, 19, 1, at);
          Tested elements(device, DType::kFloat32, 9, 5, 2);
          if (bad >= 0) {
            (in_sequence ? elements : rows)
                .set(in_sequence ? bad : bad % 4, bad % 5, -std::numeric_limits<float>::infinity());
            rows.upload();
            elements.upload();
          }
          const DeviceArray<std::int64_t> first(device, {before});
          std::int64_t plain = before;
          const SampleValues values[] = {{.values = rows.device_floats()},
                                         {elements.device_floats(), on_device.data()}};
          first_bad_sample(ctx, {.samples = 4, .values = values, .first = first.data()});
          const SampleValues plain_values[] = {{.values = rows.host_floats()},
                                               {elements.host_floats(), offsets.data()}};
          reference::first_bad_sample(host,
                                      {.samples = 4, .values = plain_values, .first = &plain});
          EXPECT_EQ(first.read()[0], plain) << "bad " << bad << ", before " << before;
        }
      }
    }
  }
}

}  // namespace weft::kernels::parity
