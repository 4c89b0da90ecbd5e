// On each target the bits of the dense model's other kernels depend on values and shapes alone: not
// on addresses, strides, the run, or what other threads do meanwhile. (Products: matmul_test.cc;
// sparse kernels have the bits of the plain loops on every target: tests/kernels.)
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels_dense/per_target.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/finite.h"
#include "weft/kernels/interaction.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels {
namespace {

/// Where matrices lie: the floats between their rows, and before their first.
struct Layout {
  std::int64_t padding = 0;
  std::int64_t shift = 0;
};

class LaidOutNumbers {
 public:
  LaidOutNumbers(std::int64_t rows, std::int64_t cols, unsigned seed, const Layout& layout)
      : rows_(rows),
        cols_(cols),
        stride_(cols + layout.padding),
        shift_(layout.shift),
        values_(static_cast<std::size_t>(rows * stride_ + shift_)) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        view().row(i)[j] = normal(random);
      }
    }
  }

  Matrix<float> view() { return {values_.data() + shift_, rows_, cols_, stride_}; }

  void append_to(std::vector<std::uint32_t>& bits) {
    for (std::int64_t i = 0; i < rows_; ++i) {
      for (std::int64_t j = 0; j < cols_; ++j) {
        bits.push_back(std::bit_cast<std::uint32_t>(view().row(i)[j]));
      }
    }
  }

 private:
  std::int64_t rows_, cols_, stride_, shift_;
  std::vector<float> values_;
};

using Bits = std::vector<std::uint32_t>;

struct LaidOutFields {
  LaidOutFields(
      std::int64_t count, std::int64_t rows, std::int64_t dim, unsigned seed, const Layout& at) {
    for (std::int64_t f = 0; f < count; ++f) {
      numbers.emplace_back(rows, dim, seed + static_cast<unsigned>(f), at);
    }
    for (LaidOutNumbers& n : numbers) {
      views.push_back(n.view());
      const_views.emplace_back(n.view());
    }
  }

  std::vector<LaidOutNumbers> numbers;
  std::vector<Matrix<float>> views;
  std::vector<Matrix<const float>> const_views;
};

Bits dots(const Layout& at) {
  Bits bits;
  for (const auto& [count, dim] : {std::pair{9, 33}, {27, 16}, {5, 7}}) {
    LaidOutFields fields(count, 6, dim, 1, at);
    LaidOutFields dfields(count, 6, dim, 50, at);
    LaidOutNumbers out(6, num_pairs(count), 2, at);
    std::vector<float> scratch(static_cast<std::size_t>(dot_interaction_scratch(count, dim)));
    Context ctx;
    dot_interaction_forward(
        ctx, {.fields = fields.const_views, .out = out.view(), .scratch = scratch.data()});
    out.append_to(bits);
    dot_interaction_backward(ctx, {.fields = fields.const_views,
                                   .dout = out.view(),
                                   .dfields = dfields.views,
                                   .accumulate = 1,
                                   .scratch = scratch.data()});
    for (LaidOutNumbers& n : dfields.numbers) {
      n.append_to(bits);
    }
  }
  return bits;
}

Bits factorization(const Layout& at) {
  Bits bits;
  LaidOutFields fields(9, 6, 33, 1, at);
  LaidOutFields dfields(9, 6, 33, 50, at);
  LaidOutNumbers sums(6, 33, 2, at);
  LaidOutNumbers out(1, 6, 3, at);
  Context ctx;
  factorization_forward(
      ctx, {.fields = fields.const_views, .sums = sums.view(), .out = out.view().data});
  factorization_backward(ctx, {.fields = fields.const_views,
                               .sums = sums.view(),
                               .dout = out.view().data,
                               .dfields = dfields.views});
  sums.append_to(bits);
  out.append_to(bits);
  for (LaidOutNumbers& n : dfields.numbers) {
    n.append_to(bits);
  }
  return bits;
}

Bits elementwise(const Layout& at) {
  Bits bits;
  LaidOutNumbers x(37, 53, 1, at);
  LaidOutNumbers y(37, 53, 2, at);
  LaidOutNumbers sums(1, 53, 3, at);
  add(Matrix<const float>(x.view()), y.view());
  relu_backward(Matrix<const float>(x.view()), y.view());
  column_sums(Matrix<const float>(y.view()), sums.view().data);
  y.append_to(bits);
  sums.append_to(bits);
  LaidOutNumbers u(37, 53, 4, at);
  LaidOutNumbers z(37, 53, 5, at);
  cross_forward_elements(CrossElements<float>{x.view(), u.view(), y.view(), z.view()});
  z.append_to(bits);
  return bits;
}

Bits sequences(const Layout& at) {
  Bits bits;
  const std::vector<std::int64_t> offsets = {0, 3, 3, 4, 20};
  LaidOutNumbers values(20, 33, 1, at);
  const Sequences sequences{values.view(), offsets.data(), 4};
  Context ctx;
  LaidOutNumbers weights(1, 20, 2, at);
  LaidOutNumbers out(4, 33, 3, at);
  attention_pool(ctx, {.sequences = sequences, .weights = weights.view().data, .out = out.view()});
  out.append_to(bits);
  attention_weights_backward(
      ctx,
      {.sequences = sequences, .dout = out.view(), .dweights = weights.view().data, .rows = 20});
  weights.append_to(bits);
  sequence_mean_forward(ctx, {.sequences = sequences, .out = out.view()});
  out.append_to(bits);
  LaidOutNumbers inputs(20, 4 * 33, 4, at);
  attention_inputs(ctx, {.sequences = sequences, .target = out.view(), .inputs = inputs.view()});
  LaidOutNumbers dvalues(20, 33, 5, at);
  LaidOutNumbers dtarget(4, 33, 6, at);
  attention_backward(ctx, {.sequences = sequences,
                           .target = out.view(),
                           .weights = weights.view().data,
                           .dout = out.view(),
                           .dinputs = inputs.view(),
                           .dvalues = dvalues.view(),
                           .dtarget = dtarget.view()});
  inputs.append_to(bits);
  dvalues.append_to(bits);
  dtarget.append_to(bits);
  return bits;
}

class DenseKernelBits : public PerTarget {};

INSTANTIATE_TEST_SUITE_P(Targets, DenseKernelBits, tested_targets(), target_name);

TEST_P(DenseKernelBits, DependOnValuesAndShapesAlone) {
  for (const auto& run : {dots, factorization, elementwise, sequences}) {
    const Bits expected = run({});
    ASSERT_FALSE(expected.empty());
    EXPECT_EQ(run({}), expected);
    for (const Layout& at : {Layout{0, 1}, Layout{3, 0}, Layout{5, 2}, Layout{16, 7}}) {
      EXPECT_EQ(run(at), expected) << "padding " << at.padding << ", shift " << at.shift;
    }
    std::vector<Bits> several(3);
    std::vector<std::thread> threads;
    for (Bits& bits : several) {
      threads.emplace_back([&bits, &run] { bits = run({1, 1}); });
    }
    for (std::thread& thread : threads) {
      thread.join();
    }
    for (const Bits& bits : several) {
      EXPECT_EQ(bits, expected);
    }
  }
}

// Whether the kernels fuse multiply-adds, which those of the lowest target do not. These may stand
// for a target that is not in the build.
bool kernels_fuse() {
  constexpr float kSmall = 1.0F + 0x1p-12F;  // its square is rounded
  const float x[] = {1.0F, kSmall};
  const float y[] = {-1.0F, kSmall};
  const Matrix<const float> fields[] = {matrix(x, 1, 2), matrix(y, 1, 2)};
  float dot = 0.0F;
  std::vector<float> scratch(static_cast<std::size_t>(dot_interaction_scratch(2, 2)));
  Context ctx;
  dot_interaction_forward(ctx,
                          {.fields = fields, .out = matrix(&dot, 1, 1), .scratch = scratch.data()});
  return dot != kSmall * kSmall - 1.0F;
}

float plain_mul_add(bool fused, float a, float b, float sum) {
  return fused ? std::fma(a, b, sum) : sum + a * b;
}

struct DotCase {
  std::int64_t samples;
  std::int64_t fields;
  std::int64_t dim;
};

void expect_plain_dots(const DotCase& one, std::int64_t accumulate, const Layout& at) {
  SCOPED_TRACE(testing::Message() << one.samples << " samples, " << one.fields << " fields of "
                                  << one.dim << ", " << accumulate << " added to");
  Context ctx;
  LaidOutFields fields(one.fields, one.samples, one.dim, 1, at);
  LaidOutFields dfields(one.fields, one.samples, one.dim, 50, at);
  LaidOutNumbers out(one.samples, num_pairs(one.fields), 2, at);
  LaidOutNumbers dout(one.samples, num_pairs(one.fields), 3, at);
  const bool fused = kernels_fuse();
  Bits plain_dots;
  Bits plain_gradients;
  for (std::int64_t s = 0; s < one.samples; ++s) {
    for (std::size_t i = 0; i < fields.views.size(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        float sum = 0.0F;
        for (std::int64_t d = 0; d < one.dim; ++d) {
          sum = plain_mul_add(fused, fields.views[i].row(s)[d], fields.views[j].row(s)[d], sum);
        }
        plain_dots.push_back(std::bit_cast<std::uint32_t>(sum));
      }
    }
  }
  for (std::int64_t i = 0; i < one.fields; ++i) {
    for (std::int64_t s = 0; s < one.samples; ++s) {
      for (std::int64_t d = 0; d < one.dim; ++d) {
        float sum = i < accumulate ? dfields.views[static_cast<std::size_t>(i)].row(s)[d] : 0.0F;
        for (std::int64_t j = 0; j < one.fields; ++j) {
          const std::int64_t pair = num_pairs(std::max(i, j)) + std::min(i, j);
          sum = plain_mul_add(fused, i == j ? 0.0F : dout.view().row(s)[pair],
                              fields.views[static_cast<std::size_t>(j)].row(s)[d], sum);
        }
        plain_gradients.push_back(std::bit_cast<std::uint32_t>(sum));
      }
    }
  }
  // Work memory holds what others left, and nothing behind it is written.
  const auto floats = static_cast<std::size_t>(dot_interaction_scratch(one.fields, one.dim));
  std::vector<float> scratch(floats + 1, std::numeric_limits<float>::quiet_NaN());
  scratch[floats] = 7.0F;
  dot_interaction_forward(
      ctx, {.fields = fields.const_views, .out = out.view(), .scratch = scratch.data()});
  std::fill_n(scratch.begin(), floats, std::numeric_limits<float>::quiet_NaN());
  dot_interaction_backward(ctx, {.fields = fields.const_views,
                                 .dout = dout.view(),
                                 .dfields = dfields.views,
                                 .accumulate = accumulate,
                                 .scratch = scratch.data()});
  Bits dots_found;
  Bits gradients;
  out.append_to(dots_found);
  for (LaidOutNumbers& n : dfields.numbers) {
    n.append_to(gradients);
  }
  EXPECT_EQ(dots_found, plain_dots);
  EXPECT_EQ(gradients, plain_gradients);
  EXPECT_EQ(scratch[floats], 7.0F);
}

// In whole registers and behind them, whatever else is in the row.
TEST_P(DenseKernelBits, EveryValueThatIsNotFiniteIsFound) {
  using Limits = std::numeric_limits<float>;
  Context ctx;
  for (const std::int64_t cols : {1, 3, 4, 7, 8, 15, 16, 17, 31, 33, 64, 71}) {
    LaidOutNumbers numbers(3, cols, 1, {3, 1});
    const std::vector<SampleValues> values = {{.values = numbers.view()}};
    const auto found = [&] {
      std::int64_t first = -1;
      first_bad_sample(ctx, {.samples = 3, .values = values, .first = &first});
      return first;
    };
    for (std::int64_t at = 0; at < cols; ++at) {
      float& value = numbers.view().row(1)[at];
      for (const float bad : {Limits::infinity(), -Limits::infinity(), Limits::quiet_NaN(),
                              -Limits::quiet_NaN(), Limits::signaling_NaN()}) {
        value = bad;
        ASSERT_EQ(found(), 1) << cols << " columns, at " << at;
      }
      for (const float good : {Limits::max(), Limits::lowest(), Limits::denorm_min(), -0.0F}) {
        value = good;
        ASSERT_EQ(found(), -1) << cols << " columns, at " << at;
      }
    }
  }
}

// Every shape of a block of registers, and what is left behind it.
TEST_P(DenseKernelBits, DotsAreThoseOfPlainLoops) {
  for (const std::int64_t fields :
       {1, 2, 3, 4, 5, 8, 9, 11, 12, 13, 16, 17, 20, 21, 24, 27, 28, 29, 32, 33, 43, 49}) {
    for (const std::int64_t dim : {1, 3, 15, 16, 17, 31, 32, 33, 48, 64, 80}) {
      for (const Layout& at : {Layout{0, 0}, Layout{3, 1}}) {
        expect_plain_dots({1, fields, dim}, 0, at);
        expect_plain_dots({3, fields, dim}, 1, at);
      }
    }
    expect_plain_dots({2, fields, 33}, fields, {});
    expect_plain_dots({2, fields, 64}, fields / 2, {});
    expect_plain_dots({0, fields, 16}, 1, {});
    // Whole tiles of samples, and what is left behind them.
    for (const std::int64_t samples : {4, 8, 15, 16, 35}) {
      expect_plain_dots({samples, fields, 18}, 0, {3, 1});
      expect_plain_dots({samples, fields, 16}, 0, {});
    }
  }
}

}  // namespace
}  // namespace weft::kernels
