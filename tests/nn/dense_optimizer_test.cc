#include <cmath>
#include <limits>
#include <random>

#include <gtest/gtest.h>

#include "weft/base/thread_pool.h"
#include "weft/optim/dense.h"
#include "weft/optim/schedule.h"

namespace weft::optim {
namespace {

std::vector<float> random_values(std::int64_t count, unsigned seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) {
    value = normal(random);
  }
  return values;
}

spec::DenseOptimizer options_of(spec::DenseOptimizerKind kind) {
  spec::DenseOptimizer options;
  options.type = kind;
  options.learning_rate = 0.05;
  options.weight_decay = 0.1;
  options.clip_norm = 3.0;
  options.initial_accumulator = kind == spec::DenseOptimizerKind::kAdagrad ? 0.1 : 0.0;
  return options;
}

constexpr std::int64_t kCount = 3 * 4096 + 77;

// Three steps by plain loops in double.
std::vector<double> plain_steps(const spec::DenseOptimizer& o, std::vector<double> w) {
  std::vector<double> m(w.size(), o.initial_accumulator);
  std::vector<double> v(w.size(), 0.0);
  if (o.type == spec::DenseOptimizerKind::kAdam) {
    m.assign(w.size(), 0.0);
  }
  for (int step = 1; step <= 3; ++step) {
    const std::vector<float> g32 = random_values(kCount, static_cast<unsigned>(step));
    double norm = 0.0;
    for (const float g : g32) {
      norm += static_cast<double>(g) * static_cast<double>(g);
    }
    norm = std::sqrt(norm);
    const double clip = std::min(1.0, o.clip_norm / (norm + 1e-6));
    const double lr = o.learning_rate * 0.5;
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = static_cast<double>(g32[i]) * clip + o.weight_decay * w[i];
      switch (o.type) {
        case spec::DenseOptimizerKind::kSgd:
          w[i] -= lr * g;
          break;
        case spec::DenseOptimizerKind::kAdagrad:
          m[i] += g * g;
          w[i] -= lr * g / (std::sqrt(m[i]) + o.eps);
          break;
        case spec::DenseOptimizerKind::kAdam:
          m[i] = o.beta1 * m[i] + (1 - o.beta1) * g;
          v[i] = o.beta2 * v[i] + (1 - o.beta2) * g * g;
          w[i] -= lr * (m[i] / (1 - std::pow(o.beta1, step))) /
                  (std::sqrt(v[i] / (1 - std::pow(o.beta2, step))) + o.eps);
          break;
      }
    }
  }
  return w;
}

class DenseOptimizerTest : public testing::TestWithParam<spec::DenseOptimizerKind> {};

INSTANTIATE_TEST_SUITE_P(Kinds,
                         DenseOptimizerTest,
                         testing::Values(spec::DenseOptimizerKind::kSgd,
                                         spec::DenseOptimizerKind::kAdagrad,
                                         spec::DenseOptimizerKind::kAdam));

std::vector<float> run_steps(const spec::DenseOptimizer& options, ThreadPool* pool) {
  const auto device = make_device({});
  DenseOptimizer optimizer(options, *device, kCount);
  Context ctx{.device = device.get(), .pool = pool};
  std::vector<float> w = random_values(kCount, 100);
  for (int step = 1; step <= 3; ++step) {
    const std::vector<float> g = random_values(kCount, static_cast<unsigned>(step));
    const DenseStep done = optimizer.step(ctx, w.data(), g.data(), 0.5, step);
    EXPECT_EQ(done.first_non_finite, -1);
    EXPECT_NEAR(done.gradient_norm, std::sqrt(static_cast<double>(kCount)), 3.0);
  }
  return w;
}

TEST_P(DenseOptimizerTest, AgreesWithPlainLoopsInDouble) {
  const spec::DenseOptimizer options = options_of(GetParam());
  const std::vector<float> start = random_values(kCount, 100);
  const std::vector<double> expected =
      plain_steps(options, std::vector<double>(start.begin(), start.end()));
  const std::vector<float> actual = run_steps(options, nullptr);
  for (std::size_t i = 0; i < actual.size(); ++i) {
    ASSERT_NEAR(actual[i], expected[i], 2e-6 * std::max(1.0, std::abs(expected[i]))) << i;
  }
}

TEST_P(DenseOptimizerTest, SameBitsOnAnyNumberOfThreads) {
  const spec::DenseOptimizer options = options_of(GetParam());
  const std::vector<float> serial = run_steps(options, nullptr);
  for (const int threads : {1, 2, 3}) {
    ThreadPool pool(threads);
    EXPECT_EQ(serial, run_steps(options, &pool)) << threads;
  }
}

TEST_P(DenseOptimizerTest, ANonFiniteGradientChangesNothing) {
  const auto device = make_device({});
  DenseOptimizer optimizer(options_of(GetParam()), *device, kCount);
  Context ctx{.device = device.get()};
  const std::vector<float> before = random_values(kCount, 1);
  std::vector<float> w = before;
  std::vector<float> g = random_values(kCount, 2);
  g[9000] = std::numeric_limits<float>::infinity();
  g[5000] = std::nanf("");
  EXPECT_EQ(optimizer.step(ctx, w.data(), g.data(), 1.0, 1).first_non_finite, 5000);
  EXPECT_EQ(w, before);
  g[5000] = g[9000] = std::numeric_limits<float>::max();  // squares of it are finite in fp64
  EXPECT_EQ(optimizer.step(ctx, w.data(), g.data(), 1.0, 1).first_non_finite, -1);
}

TEST(ParameterLayout, FindsParametersAndGaps) {
  ParameterLayout layout;
  layout.add("a", 3, 5);
  layout.add("b", 1, 16);
  layout.add("c", 1, 1);
  EXPECT_EQ(layout.size(), 48);
  EXPECT_EQ(layout.num_weights(), 32);
  EXPECT_EQ(layout.at(0).name, "a");
  EXPECT_EQ(layout.at(15).name, "a");
  EXPECT_EQ(layout.at(16).name, "b");
  EXPECT_EQ(layout.at(47).name, "c");
  EXPECT_EQ(layout.find("c").offset, 32);
}

TEST(DenseState, RoundTripsEveryItemByBlocks) {
  const auto device = make_device({});
  ParameterLayout layout;
  layout.add("dense.w", 6, 5);
  layout.add("dense.b", 1, 7);
  DenseOptimizer optimizer(options_of(spec::DenseOptimizerKind::kAdam), *device, layout.size());
  std::vector<float> params(static_cast<std::size_t>(layout.size()), 0.0F);
  DenseState state(layout, *device, params.data(), optimizer, Holder::kFirst);
  const std::vector<StateItem> items = state.state_items();
  ASSERT_EQ(items.size(), 6U);
  EXPECT_EQ(items[1].parameter, "dense.b");
  EXPECT_EQ(items[1].kind, "weight");
  EXPECT_EQ(items[2].kind, "exp_avg");
  EXPECT_EQ(items[5].kind, "exp_avg_sq");
  EXPECT_TRUE(items[0].first_holder);
  for (std::size_t i = 0; i < items.size(); ++i) {
    const std::int64_t rows = items[i].rows;
    const std::int64_t cols = items[i].cols;
    const std::vector<float> values = random_values(rows * cols, static_cast<unsigned>(i));
    // Written in two column blocks, bottom rows first.
    for (const auto& [c0, c1] : {std::pair<std::int64_t, std::int64_t>{2, cols}, {0, 2}}) {
      for (std::int64_t r = rows; r-- > 0;) {
        state.write_state(i, r, 1, c0, c1, values.data() + r * cols + c0);
      }
    }
    std::vector<float> back(values.size());
    state.read_state(i, 0, 1, back.data());
    state.read_state(i, 1, rows - 1, back.data() + cols);
    EXPECT_EQ(back, values) << i;
  }
  EXPECT_EQ(optimizer.state(1)[30], 0.0F) << "gaps are left";
}

TEST(Schedule, ValuesByHand) {
  spec::Schedule constant;
  EXPECT_EQ(learning_rate_factor(constant, 1), 1.0);
  constant.warmup_steps = 4;
  EXPECT_EQ(learning_rate_factor(constant, 0), 0.0);
  EXPECT_EQ(learning_rate_factor(constant, 1), 0.25);
  EXPECT_EQ(learning_rate_factor(constant, 4), 1.0);
  EXPECT_EQ(learning_rate_factor(constant, 1000), 1.0);

  spec::Schedule decay;
  decay.type = spec::ScheduleKind::kPolynomial;
  decay.warmup_steps = 10;
  decay.decay_start = 20;
  decay.decay_steps = 8;
  decay.power = 2.0;
  decay.final_factor = 0.5;
  EXPECT_EQ(learning_rate_factor(decay, 5), 0.5);
  EXPECT_EQ(learning_rate_factor(decay, 20), 1.0);
  EXPECT_EQ(learning_rate_factor(decay, 24), 0.5 + 0.5 * 0.25);
  EXPECT_EQ(learning_rate_factor(decay, 28), 0.5);
  EXPECT_EQ(learning_rate_factor(decay, 99), 0.5);
  decay.power = 0.5;
  EXPECT_DOUBLE_EQ(learning_rate_factor(decay, 26), 0.5 + 0.5 * 0.5);
  decay.decay_steps = 0;
  EXPECT_EQ(learning_rate_factor(decay, 20), 1.0);
  EXPECT_EQ(learning_rate_factor(decay, 21), 0.5);
}

}  // namespace
}  // namespace weft::optim
