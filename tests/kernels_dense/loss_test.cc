#include "weft/kernels/loss.h"

#include <cmath>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

namespace weft::kernels {
namespace {

TEST(Loss, IsStableAtBothEnds) {
  EXPECT_EQ(bce_with_logits(1000.0, 1.0), 0.0);
  EXPECT_EQ(bce_with_logits(1000.0, 0.0), 1000.0);
  EXPECT_EQ(bce_with_logits(-1000.0, 1.0), 1000.0);
  EXPECT_NEAR(bce_with_logits(-40.0, 0.0), std::exp(-40.0), 1e-30);
  EXPECT_NEAR(bce_with_logits(0.0, 0.5), std::log(2.0), 1e-16);
  EXPECT_EQ(sigmoid(-800.0), 0.0);
  EXPECT_EQ(sigmoid(800.0), 1.0);
}

TEST(Loss, ExactFunctionsAgreeWithTheLibrary) {
  for (double x = -740.0; x < 709.0; x += 0.37) {
    const double expected = std::exp(x);
    ASSERT_NEAR(exact_exp(x), expected, expected * 1e-15 + 1e-322) << x;
  }
  for (double x = 0.0; x <= 1.0; x += 0.0007) {
    ASSERT_NEAR(exact_log1p(x), std::log1p(x), std::log1p(x) * 4e-16) << x;
  }
  EXPECT_EQ(exact_exp(0.0), 1.0);
  EXPECT_TRUE(std::isinf(exact_exp(1000.0)));
  EXPECT_EQ(exact_exp(-1000.0), 0.0);
  EXPECT_TRUE(std::isnan(exact_exp(std::nan(""))));
}

TEST(Loss, WeightsTasksAndGradients) {
  const std::vector<float> logits = {0.5F, -2.0F, 3.0F, 0.0F, -1.0F, 7.0F};
  const std::vector<float> labels = {1, 0, 0, 1, 0.25F, 1};
  const std::vector<float> weights = {1, 2, 0, 0.5F, 3, 1};
  const std::vector<float> scale = {0.25F, 2.0F};
  std::vector<float> dlogits(6);
  std::vector<float> p(6);
  std::vector<double> sums(2, 99.0);
  std::int64_t first_bad = 0;
  Context ctx;
  bce_loss(ctx, {.logits = matrix(logits.data(), 3, 2),
                 .labels = matrix(labels.data(), 3, 2),
                 .weights = matrix(weights.data(), 3, 2),
                 .scale = scale,
                 .dlogits = matrix(dlogits.data(), 3, 2),
                 .probabilities = matrix(p.data(), 3, 2),
                 .loss_sums = sums.data(),
                 .first_bad = &first_bad});
  EXPECT_EQ(first_bad, -1);
  double expected[2] = {0, 0};
  for (std::size_t i = 0; i < 6; ++i) {
    const double z = logits[i];
    const double q = 1 / (1 + std::exp(-z));
    expected[i % 2] +=
        static_cast<double>(weights[i]) * -(static_cast<double>(labels[i]) * std::log(q) +
                                            (1 - static_cast<double>(labels[i])) * std::log(1 - q));
    EXPECT_FLOAT_EQ(p[i], static_cast<float>(q));
    EXPECT_NEAR(dlogits[i], scale[i % 2] * weights[i] * (static_cast<float>(q) - labels[i]), 1e-6);
  }
  EXPECT_NEAR(sums[0], expected[0], 1e-12);
  EXPECT_NEAR(sums[1], expected[1], 1e-12);
}

TEST(Loss, GradientIsThatOfTheSum) {
  constexpr double kStep = 1e-6;
  for (const double z : {-5.0, -0.3, 0.0, 0.4, 6.0}) {
    for (const double y : {0.0, 0.3, 1.0}) {
      const double difference =
          (bce_with_logits(z + kStep, y) - bce_with_logits(z - kStep, y)) / (2 * kStep);
      EXPECT_NEAR(difference, sigmoid(z) - y, 1e-9);
    }
  }
}

TEST(Loss, NamesTheFirstNonFiniteRow) {
  std::vector<float> logits = {0, 0, 0, 0};
  const std::vector<float> labels = {1, 0, 1, 0};
  const auto first = [&] {
    std::int64_t row = 0;
    Context ctx;
    bce_loss(ctx, {.logits = matrix(logits.data(), 4, 1),
                   .labels = matrix(labels.data(), 4, 1),
                   .first_bad = &row});
    return row;
  };
  EXPECT_EQ(first(), -1);
  logits[3] = std::numeric_limits<float>::infinity();
  EXPECT_EQ(first(), 3);
  logits[1] = std::nanf("");
  EXPECT_EQ(first(), 1);
}

}  // namespace
}  // namespace weft::kernels
