// Cases of weft/kernels/weight_gradient.h: weights within the bound of their sums, biases to the
// bit.
#pragma once

#include <limits>
#include <memory>

#include "tests/kernels_dense/parity/tested.h"
#include "weft/kernels/weight_gradient.h"
#include "weft/tensor/buffer.h"

namespace weft::kernels::parity {

// W [n, k], and whether a gradient is not finite.
struct GradientCase {
  std::int64_t n;
  std::int64_t k;
  bool bad = false;
};

// Samples of the slices of each part.
using Cut = std::vector<std::vector<std::int64_t>>;

inline const std::vector<Cut> kCuts = {{{20}, {20}, {21}, {20}, {20}, {20}, {21}, {20}},
                                       {{256, 256}, {}, {7}, {300}, {1, 2, 3}},
                                       {{}, {}},
                                       {{5}}};

// Operands of all slices of a cut, kept by the device's backend and by the plain loops.
class TestedOperands {
 public:
  TestedOperands(Context& ctx, const Cut& cut, DType dtype, GradientCase shape) {
    Context host;
    unsigned seed = 10;
    for (const auto& part : cut) {
      device_.emplace_back();
      host_.emplace_back();
      for (const std::int64_t samples : part) {
        const Layout at = kLayouts[seed % kLayouts.size()];
        Tested dy(*ctx.device, dtype, samples, shape.n, ++seed, at);
        Tested x(*ctx.device, dtype, samples, shape.k, ++seed, at);
        if (shape.bad && samples == part.back()) {
          dy.set(samples - 1, shape.n - 1, std::numeric_limits<float>::infinity());
          dy.upload();
        }
        owners_.push_back(make_gradient_operands(ctx));
        memory_.emplace_back(*ctx.device, gradient_operands_bytes(ctx, dtype, samples,
                                                                  {.in = shape.k, .out = shape.n}));
        owners_.back()->lie_at(memory_.back().as<void>(), memory_.back().bytes());
        keep_operands(ctx, {.dy = dy.device(), .x = x.device(), .to = owners_.back().get()});
        device_.back().push_back(owners_.back().get());
        owners_.push_back(reference::make_gradient_operands(host));
        reference::keep_operands(host,
                                 {.dy = dy.host(), .x = x.host(), .to = owners_.back().get()});
        host_.back().push_back(owners_.back().get());
      }
    }
  }

  [[nodiscard]] std::vector<PartSlices> device() const { return {device_.begin(), device_.end()}; }

  [[nodiscard]] std::vector<PartSlices> host() const { return {host_.begin(), host_.end()}; }

 private:
  std::vector<Buffer> memory_;
  std::vector<std::unique_ptr<GradientOperands>> owners_;
  std::vector<std::vector<const GradientOperands*>> device_;
  std::vector<std::vector<const GradientOperands*>> host_;
};

inline void expect_weight_gradient(Device& device, const Cut& cut, DType dtype, GradientCase one) {
  SCOPED_TRACE(
      fmt::format("[{}, {}] of {} over {} parts", one.n, one.k, to_string(dtype), cut.size()));
  Context ctx{.device = &device};
  Context host;
  const auto workspace = make_workspace(ctx);
  const TestedOperands operands(ctx, cut, dtype, one);
  const std::vector<PartSlices> parts = operands.device();
  const std::vector<PartSlices> plain = operands.host();
  std::int64_t samples = 1;
  for (const auto& part : cut) {
    for (const std::int64_t slice : part) {
      samples += slice;
    }
  }
  const auto count = static_cast<std::int64_t>(cut.size());
  Tested dw(device, DType::kFloat32, one.n, one.k, 1, kLayouts[1]);
  bool finite = true;
  for (const GradientTile& tile : gradient_tiles(ctx, {.in = one.k, .out = one.n})) {
    const DeviceArray<std::int32_t> word(device, {7});
    std::int32_t plain_word = 9;
    sum_weight_gradient(ctx, {.workspace = workspace.get(),
                              .node = {3, 3 + count},
                              .parts = parts,
                              .tile = tile,
                              .dw = dw.device_floats(),
                              .infinite = word.data()});
    reference::sum_weight_gradient(host, {.node = {0, count},
                                          .parts = plain,
                                          .tile = tile,
                                          .dw = dw.host_floats(),
                                          .infinite = &plain_word});
    EXPECT_EQ(word.read()[0], plain_word);
    finite = finite && plain_word == 0;
  }
  EXPECT_EQ(finite, !one.bad || samples == 1);
  if (finite) {
    dw.expect_same("dw", 4.0 * sum_bound(samples));
  }
}

inline void expect_bias_gradients(Device& device, const Cut& cut) {
  constexpr std::int64_t kCount = 45;
  Context ctx{.device = &device};
  Context host;
  const auto workspace = make_workspace(ctx);
  TestedList slices;
  for (const auto& part : cut) {
    for (std::size_t i = 0; i < part.size(); ++i) {
      slices.add(Tested(device, DType::kFloat32, 1, kCount, static_cast<unsigned>(7 + i)));
    }
  }
  Tested flat(device, DType::kFloat32, 1, 64, 3);
  std::int32_t words[2] = {7, 7};
  const DeviceArray<std::int32_t> word(device, {7});
  const auto sum = [&](const std::vector<Matrix<const float>>& views, float* to, bool on_device) {
    std::vector<std::vector<const float*>> pointers;
    std::size_t next = 0;
    for (const auto& part : cut) {
      pointers.emplace_back();
      for (std::size_t i = 0; i < part.size(); ++i) {
        pointers.back().push_back(views[next++].data);
      }
    }
    const std::vector<PartBiases> parts(pointers.begin(), pointers.end());
    const std::vector<BiasPlace> places = {{.begin = 0, .size = 17, .to = to},
                                           {.begin = 17, .size = 28, .to = to + 32}};
    BiasGradients args{.workspace = workspace.get(),
                       .node = {3, 3 + static_cast<std::int64_t>(cut.size())},
                       .parts = parts,
                       .count = kCount,
                       .places = places,
                       .infinite = on_device ? word.data() : words};
    on_device ? sum_bias_gradients(ctx, args) : reference::sum_bias_gradients(host, args);
  };
  sum(slices.device<const float>(), flat.device_floats().data, true);
  sum(slices.host<const float>(), flat.host_floats().data, false);
  flat.expect_same("biases");
  EXPECT_EQ(word.read()[0], words[0]);
}

inline void expect_weight_gradient(Device& device) {
  for (const Cut& cut : kCuts) {
    for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
      for (const GradientCase& shape : std::vector<GradientCase>{
               {1, 5}, {33, 13}, {64, 64}, {300, 130}, {17, 700}, {70, 130, true}}) {
        expect_weight_gradient(device, cut, dtype, shape);
      }
    }
    expect_bias_gradients(device, cut);
  }
}

}  // namespace weft::kernels::parity
