// Weft's own products: each element is a chain of fused multiply-adds, to the bit.
#include "weft/kernels/cpu/panel_product.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels_dense/per_target.h"
#include "weft/layout/products.h"
#include "weft/tensor/host_block.h"

namespace weft::kernels {
namespace {

using layout::kPanel;
using layout::kStrip;

constexpr float kUntouched = -77.0F;
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using PanelProducts = PerTarget;

#if HWY_ARCH_X86
INSTANTIATE_TEST_SUITE_P(Targets,
                         PanelProducts,
                         testing::Values(std::int64_t{HWY_AVX2}, std::int64_t{HWY_AVX3}),
                         target_name);
#else
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PanelProducts);
#endif

std::vector<float> normal_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  std::generate(values.begin(), values.end(), [&] { return normal(random); });
  return values;
}

/// A product and its result by one multiplication after the other.
struct Case {
  std::int64_t m, n, k;
  std::vector<float> a = normal_values(m * k, 1);
  std::vector<float> b = normal_values(k * n, 2);
  std::vector<float> bias = normal_values(n, 3);
  std::vector<float> before = normal_values(m * n, 4);

  /// NaN lies behind the edges of b here: it must not reach the result.
  [[nodiscard]] const float* strips(std::int64_t strip, HostBlock& memory) const {
    const std::int64_t rows = layout::round_up(k, layout::kFp32RowUnit);
    const std::int64_t count = rows * layout::round_up(n, kPanel);
    auto* const packed = memory.at_least_of<float>(count);
    std::fill_n(packed, count, kNan);
    for (std::int64_t i = 0; i < k; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        packed[(j / strip * rows + i) * strip + j % strip] = b[static_cast<std::size_t>(i * n + j)];
      }
    }
    return packed;
  }

  [[nodiscard]] std::vector<float> chains() const {
    std::vector<float> sums(static_cast<std::size_t>(m * n));
    for (std::int64_t i = 0; i < m; ++i) {
      for (std::int64_t j = 0; j < n; ++j) {
        float sum = 0.0F;
        for (std::int64_t p = 0; p < k; ++p) {
          sum = std::fma(a[static_cast<std::size_t>(i * k + p)],
                         b[static_cast<std::size_t>(p * n + j)], sum);
        }
        sums[static_cast<std::size_t>(i * n + j)] = sum;
      }
    }
    return sums;
  }

  /// Runs it on what was there before, which is NaN where nothing is added to it; nothing
  /// behind the result may be written. Strips of both widths give the same bits.
  [[nodiscard]] std::vector<float> run(const PanelProduct& product) const {
    std::vector<float> out = run(product, kStrip);
    EXPECT_EQ(run(product, kPanel), out) << m << " x " << n << " x " << k;
    return out;
  }

  [[nodiscard]] std::vector<float> run(PanelProduct product, std::int64_t strip) const {
    product.strip = strip;
    product.m = m;
    product.n = n;
    product.k = k;
    HostBlock memory;
    std::vector<float> out = product.adds ? before : std::vector<float>(before.size(), kNan);
    out.resize(out.size() + 2 * kPanel, kUntouched);
    multiply_panels(product, a.data(), strips(strip, memory), out.data());
    EXPECT_TRUE(std::all_of(out.begin() + m * n, out.end(),
                            [](float value) { return value == kUntouched; }));
    out.resize(static_cast<std::size_t>(m * n));
    return out;
  }
};

const std::vector<Case>& cases() {
  static const std::vector<Case> all = {
      {1, 1, 1},      {1, 5, 3},       {2, 1, 17},     {7, 13, 5},   {64, 64, 64},
      {33, 1, 64},    {65, 65, 13},    {100, 17, 351}, {64, 3, 479}, {130, 72, 127},
      {9, 600, 1024}, {128, 136, 640}, {21, 13, 256},  {23, 47, 32}, {41, 31, 16}};
  return all;
}

TEST_P(PanelProducts, AnElementIsOneChainOfMultiplyAdds) {
  for (const Case& one : cases()) {
    EXPECT_EQ(one.run({}), one.chains()) << one.m << " x " << one.n << " x " << one.k;
  }
}

TEST_P(PanelProducts, BiasAndReluComeAfterTheSum) {
  for (const Case& one : cases()) {
    std::vector<float> expected = one.chains();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] += one.bias[i % static_cast<std::size_t>(one.n)];
    }
    EXPECT_EQ(one.run({.bias = one.bias.data()}), expected);
    for (float& value : expected) {
      value = std::max(value, 0.0F);
    }
    EXPECT_EQ(one.run({.bias = one.bias.data(), .activation = Activation::kRelu}), expected);
  }
}

TEST_P(PanelProducts, ReluOfNanAndOfMinusZeroIsZero) {
  const float a = 1.0F;
  HostBlock memory;
  for (const std::int64_t strip : {kStrip, kPanel}) {
    for (const std::int64_t n : {3, 16}) {
      auto* const b = memory.at_least_of<float>(16 * kPanel);
      std::fill_n(b, 16 * kPanel, -1.0F);
      b[1] = kNan;
      b[2] = 0.0F;
      const std::vector<float> bias(16, -0.0F);
      std::vector<float> out(16, kUntouched);
      PanelProduct product{.m = 1, .n = n, .k = 1, .strip = strip};
      multiply_panels(product, &a, b, out.data());
      EXPECT_TRUE(std::isnan(out[1]));
      product.bias = bias.data();
      product.activation = Activation::kRelu;
      multiply_panels(product, &a, b, out.data());
      for (std::size_t j = 0; j < 3; ++j) {
        EXPECT_EQ(std::bit_cast<std::uint32_t>(out[j]), 0U) << j << " of " << n;
      }
    }
  }
}

TEST_P(PanelProducts, WhatIsAddedIsTheRoundedSum) {
  for (const Case& one : cases()) {
    std::vector<float> expected = one.chains();
    for (std::size_t i = 0; i < expected.size(); ++i) {
      expected[i] = one.before[i] + expected[i];
    }
    EXPECT_EQ(one.run({.adds = true}), expected);
  }
}

}  // namespace
}  // namespace weft::kernels
