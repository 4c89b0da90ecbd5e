// What the lists of parity cases (parity_test.cc) do not say of the dense model's kernels: that a
// sample does not depend on others, rounding to bf16, finite values; and sequences against formulas
// written out here.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>
#include <random>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "tests/kernels_dense/per_target.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/cpu/pack.h"
#include "weft/kernels/interaction.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels {
namespace {

// Every test below runs once per Highway target.
class DenseKernels : public PerTarget {};

INSTANTIATE_TEST_SUITE_P(Targets, DenseKernels, tested_targets(), target_name);

// A random strided matrix in fp32 and the same numbers, compact, in double.
struct Numbers {
  std::int64_t rows;
  std::int64_t cols;
  std::int64_t stride;
  std::vector<float> values;
  std::vector<double> exact;

  Numbers(std::int64_t r, std::int64_t c, unsigned seed, std::int64_t padding = 3)
      : rows(r), cols(c), stride(c + padding), values(static_cast<std::size_t>(r * stride), 77.0F) {
    std::mt19937 random(seed);
    std::normal_distribution<float> normal;
    for (std::int64_t i = 0; i < r; ++i) {
      for (std::int64_t j = 0; j < c; ++j) {
        const float value = normal(random);
        view().row(i)[j] = value;
        exact.push_back(static_cast<double>(value));
      }
    }
  }

  Matrix<float> view() { return {values.data(), rows, cols, stride}; }

  Matrix<double> plain() { return matrix(exact.data(), rows, cols); }

  // fp32 against double after the same operation on both; padding is untouched.
  void expect_same(const char* what, double tolerance = 1e-5) {
    for (std::int64_t i = 0; i < rows; ++i) {
      for (std::int64_t j = 0; j < cols; ++j) {
        const double e = plain().row(i)[j];
        ASSERT_NEAR(e, view().row(i)[j], tolerance * std::max(1.0, std::abs(e)))
            << what << " [" << i << ", " << j << "] of [" << rows << ", " << cols << "]";
      }
      for (std::int64_t j = cols; j < stride; ++j) {
        ASSERT_EQ(view().row(i)[j], 77.0F) << what << ": wrote beside the matrix";
      }
    }
  }
};

struct Fields {
  std::vector<Numbers> numbers;
  std::vector<Matrix<float>> views;
  std::vector<Matrix<const float>> const_views;
  std::vector<Matrix<double>> plain;
  std::vector<Matrix<const double>> const_plain;

  Fields(std::int64_t count, std::int64_t rows, std::int64_t dim, unsigned seed) {
    for (std::int64_t f = 0; f < count; ++f) {
      numbers.emplace_back(rows, dim, seed + static_cast<unsigned>(f), f % 3);
    }
    for (Numbers& n : numbers) {
      views.push_back(n.view());
      const_views.emplace_back(n.view());
      plain.push_back(n.plain());
      const_plain.emplace_back(n.plain());
    }
  }

  void expect_same(const char* what) {
    for (Numbers& n : numbers) {
      n.expect_same(what);
    }
  }
};

TEST_P(DenseKernels, DotInteractionASampleDoesNotDependOnTheOthers) {
  Fields fields(9, 6, 33, 1);
  std::vector<float> scratch(static_cast<std::size_t>(dot_interaction_scratch(9, 33)));
  Numbers whole(6, num_pairs(9), 2);
  Context ctx;
  dot_interaction_forward(
      ctx, {.fields = fields.const_views, .out = whole.view(), .scratch = scratch.data()});
  std::vector<Matrix<const float>> last;
  for (const auto& view : fields.const_views) {
    last.push_back(view.slice_rows(5, 6));
  }
  Numbers one(1, num_pairs(9), 3);
  dot_interaction_forward(ctx, {.fields = last, .out = one.view(), .scratch = scratch.data()});
  for (std::int64_t j = 0; j < num_pairs(9); ++j) {
    EXPECT_EQ(one.view().row(0)[j], whole.view().row(5)[j]);
  }
}

// bf16 operands: the fp32 result of the same numbers, rounded.
TEST_P(DenseKernels, CrossInBf16IsTheRoundedFp32Result) {
  constexpr std::int64_t kRows = 3;
  constexpr std::int64_t kCols = 71;
  std::mt19937 random(4);
  std::normal_distribution<float> normal;

  struct Both {
    std::vector<float> fp32 = std::vector<float>(kRows * kCols);
    std::vector<BFloat16> bf16 = std::vector<BFloat16>(kRows * kCols);

    Matrix<float> exact() { return matrix(fp32.data(), kRows, kCols); }

    Matrix<BFloat16> rounded() { return matrix(bf16.data(), kRows, kCols); }

    void expect_same(const char* what) const {
      for (std::size_t i = 0; i < fp32.size(); ++i) {
        ASSERT_EQ(to_bfloat16(fp32[i]), bf16[i]) << what << " " << i;
      }
    }
  };

  Both x0;
  Both u;
  Both x;
  Both y;
  Both du;
  Both dx0;
  for (Both* both : {&x0, &u, &x, &y, &dx0}) {
    for (std::size_t i = 0; i < both->fp32.size(); ++i) {
      both->bf16[i] = to_bfloat16(normal(random));
      both->fp32[i] = to_float(both->bf16[i]);
    }
  }
  cross_backward_elements(CrossGradients<float>{
      x0.exact(), u.exact(), {}, y.exact(), du.exact(), dx0.exact(), CrossSum::kAdd});
  cross_backward_elements(CrossGradients<BFloat16>{
      x0.rounded(), u.rounded(), {}, y.rounded(), du.rounded(), dx0.rounded(), CrossSum::kAdd});
  du.expect_same("du");
  dx0.expect_same("dx0");
  cross_forward_elements(CrossElements<float>{x0.exact(), u.exact(), x.exact(), y.exact()});
  cross_forward_elements(
      CrossElements<BFloat16>{x0.rounded(), u.rounded(), x.rounded(), y.rounded()});
  y.expect_same("y");
}

TEST_P(DenseKernels, CopySeesEveryValueThatIsNotFinite) {
  constexpr std::int64_t kRows = 2;
  constexpr std::int64_t kCols = 37;
  for (std::int64_t bad = -1; bad < kRows * kCols; ++bad) {
    std::vector<float> from(kRows * kCols, -std::numeric_limits<float>::max());
    std::vector<float> to(from.size());
    if (bad >= 0) {
      from[static_cast<std::size_t>(bad)] = bad % 2 == 0 ? -std::numeric_limits<float>::infinity()
                                                         : std::numeric_limits<float>::quiet_NaN();
    }
    const bool finite = copy_is_finite(matrix(static_cast<const float*>(from.data()), kRows, kCols),
                                       matrix(to.data(), kRows, kCols));
    EXPECT_EQ(finite, bad < 0) << bad;
    if (finite) {
      EXPECT_EQ(from, to);
    }
  }
}

TEST_P(DenseKernels, ElementwiseBf16RoundsAsTheScalarConversionDoes) {
  std::vector<float> values;
  for (std::uint32_t high = 0; high < 0x10000; ++high) {
    for (const std::uint32_t low : {0x0U, 0x1U, 0x7fffU, 0x8000U, 0x8001U, 0xffffU}) {
      values.push_back(std::bit_cast<float>((high << 16) | low));
    }
  }
  const auto count = static_cast<std::int64_t>(values.size());
  std::vector<BFloat16> rounded(values.size());
  assign(matrix(values.data(), 1, count), matrix(rounded.data(), 1, count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const BFloat16 expected = to_bfloat16(values[i]);
    if (std::isnan(values[i])) {
      ASSERT_TRUE(std::isnan(to_float(rounded[i])));
    } else {
      ASSERT_EQ(rounded[i], expected) << values[i];
    }
  }
  std::vector<float> back(values.size());
  assign(matrix(rounded.data(), 1, count), matrix(back.data(), 1, count));
  EXPECT_EQ(back[6 * 0x3f80], 1.0F);

  std::vector<BFloat16> dy(values.size(), to_bfloat16(2.0F));
  relu_backward(matrix(rounded.data(), 1, count), matrix(dy.data(), 1, count));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const float y = to_float(rounded[i]);
    if (!std::isnan(y)) {
      ASSERT_EQ(to_float(dy[i]), y > 0.0F ? 2.0F : 0.0F) << y;
    }
  }
}

// Every value of `Word` is its place in the source, so that none can be in another's place.
template <typename Word>
void expect_transposed(DType dtype, std::int64_t rows, std::int64_t cols) {
  SCOPED_TRACE(fmt::format("[{}, {}] of {}", rows, cols, to_string(dtype)));
  const std::int64_t added = 3;
  const std::int64_t stride = cols + 2;
  const std::int64_t to_stride = rows + added + 5;
  constexpr Word kUntouched = 0x7777;
  std::vector<Word> from(static_cast<std::size_t>(rows * stride));
  std::iota(from.begin(), from.end(), Word{0});
  std::vector<Word> to(static_cast<std::size_t>(cols * to_stride), kUntouched);
  Operand source;
  source.data = from.data();
  source.dtype = dtype;
  source.rows = rows;
  source.cols = cols;
  source.stride = stride;
  Operand target = source;
  target.data = to.data();
  target.rows = cols;
  target.cols = rows + added;
  target.stride = to_stride;
  transpose(source, target);
  for (std::int64_t j = 0; j < cols; ++j) {
    for (std::int64_t i = 0; i < to_stride; ++i) {
      const Word expected = i < rows           ? static_cast<Word>(i * stride + j)
                            : i < rows + added ? Word{0}
                                               : kUntouched;
      ASSERT_EQ(to[static_cast<std::size_t>(j * to_stride + i)], expected) << j << ", " << i;
    }
  }
}

// Blocks that are whole, those that overlap the one before, and matrices smaller than a block.
TEST_P(DenseKernels, TransposingMovesEveryValueToItsPlace) {
  for (const std::int64_t rows : {1, 3, 4, 15, 16, 17, 31, 32, 33, 63, 100, 256}) {
    for (const std::int64_t cols : {1, 3, 4, 5, 7, 8, 9, 16, 31, 33, 64, 70}) {
      expect_transposed<std::uint32_t>(DType::kFloat32, rows, cols);
      expect_transposed<std::uint16_t>(DType::kBFloat16, rows, cols);
    }
  }
}

// ReLU on the way back and its sums have the bits of the two one after the other.
TEST_P(DenseKernels, ReluBackwardSumsWhatItLeaves) {
  for (const std::int64_t cols : {1, 7, 16, 37, 128}) {
    Numbers y(29, cols, 1);
    Numbers dy(29, cols, 2);
    Numbers expected_dy = dy;
    const auto bits = [](const std::vector<float>& values) {
      std::vector<std::uint32_t> words;
      for (const float value : values) {
        words.push_back(std::bit_cast<std::uint32_t>(value));
      }
      return words;
    };
    std::vector<float> sums(static_cast<std::size_t>(cols), 77.0F);
    std::vector<float> expected(sums.size());
    relu_backward(Matrix<const float>(y.view()), dy.view(), sums.data());
    relu_backward(Matrix<const float>(y.view()), expected_dy.view());
    column_sums(Matrix<const float>(expected_dy.view()), expected.data());
    EXPECT_EQ(bits(dy.values), bits(expected_dy.values)) << cols;
    EXPECT_EQ(bits(sums), bits(expected)) << cols;

    std::vector<BFloat16> halves(static_cast<std::size_t>(29 * cols));
    std::vector<BFloat16> gradients(halves.size());
    assign(Matrix<const float>(y.view()), matrix(halves.data(), 29, cols));
    Numbers fresh(29, cols, 2);
    assign(Matrix<const float>(fresh.view()), matrix(gradients.data(), 29, cols));
    std::vector<BFloat16> expected_gradients = gradients;
    const ConstOperand output(matrix(std::as_const(halves).data(), 29, cols));
    relu_backward(output, matrix(gradients.data(), 29, cols), sums.data());
    relu_backward(output, matrix(expected_gradients.data(), 29, cols));
    column_sums(matrix(std::as_const(expected_gradients).data(), 29, cols), expected.data());
    EXPECT_EQ(gradients, expected_gradients) << cols;
    EXPECT_EQ(bits(sums), bits(expected)) << cols;
  }
}

void fill_exact_zero(Numbers& numbers) {
  std::fill(numbers.exact.begin(), numbers.exact.end(), 0.0);
}

// Forward and backward of attention's pieces against formulas written out here.
TEST_P(DenseKernels, SequenceAgreesWithPlainLoops) {
  for (const std::int64_t dim : {1, 5, 16, 19, 48}) {
    SCOPED_TRACE(dim);
    const std::vector<std::int64_t> offsets = {0, 0, 3, 4, 4, 11};
    const std::int64_t b = 5;
    const std::int64_t n = 11;
    Numbers e(n, dim, 1);
    Numbers t(b, dim, 2);
    Numbers a(n, 1, 3, 0);
    Numbers dout(b, dim, 4);
    Numbers g(n + 2, 4 * dim, 5);
    const Sequences sequences{e.view(), offsets.data(), b};

    Numbers inputs(n + 2, 4 * dim, 6);
    Numbers out(b, dim, 7);
    Numbers mean(b, dim, 8);
    Numbers da(n, 1, 9, 0);
    Numbers de(n, dim, 10);
    Numbers dt(b, dim, 11);
    Numbers dmean(n, dim, 12);
    Context ctx;
    attention_inputs(ctx, {.sequences = sequences, .target = t.view(), .inputs = inputs.view()});
    attention_pool(ctx, {.sequences = sequences, .weights = a.values.data(), .out = out.view()});
    sequence_mean_forward(ctx, {.sequences = sequences, .out = mean.view()});
    attention_weights_backward(
        ctx,
        {.sequences = sequences, .dout = dout.view(), .dweights = da.values.data(), .rows = n});
    attention_backward(ctx, {.sequences = sequences,
                             .target = t.view(),
                             .weights = a.values.data(),
                             .dout = dout.view(),
                             .dinputs = g.view(),
                             .dvalues = de.view(),
                             .dtarget = dt.view()});
    sequence_mean_backward(ctx,
                           {.sequences = sequences, .dout = dout.view(), .dvalues = dmean.view()});

    fill_exact_zero(inputs);
    fill_exact_zero(out);
    fill_exact_zero(mean);
    fill_exact_zero(da);
    for (std::int64_t s = 0; s < b; ++s) {
      const auto begin = offsets[static_cast<std::size_t>(s)];
      const auto end = offsets[static_cast<std::size_t>(s) + 1];
      for (std::int64_t i = begin; i < end; ++i) {
        for (std::int64_t d = 0; d < dim; ++d) {
          const double ev = e.plain().row(i)[d];
          const double tv = t.plain().row(s)[d];
          const double* gi = g.plain().row(i);
          const double dv = dout.plain().row(s)[d];
          inputs.plain().row(i)[d] = ev;
          inputs.plain().row(i)[dim + d] = tv;
          inputs.plain().row(i)[2 * dim + d] = ev * tv;
          inputs.plain().row(i)[3 * dim + d] = ev - tv;
          out.plain().row(s)[d] += a.exact[static_cast<std::size_t>(i)] * ev;
          mean.plain().row(s)[d] += ev / static_cast<double>(end - begin);
          da.exact[static_cast<std::size_t>(i)] += dv * ev;
          de.plain().row(i)[d] = gi[d] + gi[2 * dim + d] * tv + gi[3 * dim + d] +
                                 a.exact[static_cast<std::size_t>(i)] * dv;
          dt.plain().row(s)[d] += gi[dim + d] + gi[2 * dim + d] * ev - gi[3 * dim + d];
          dmean.plain().row(i)[d] = dv / static_cast<double>(end - begin);
        }
      }
    }
    inputs.expect_same("inputs");
    out.expect_same("weighted sum");
    mean.expect_same("mean");
    da.expect_same("dweights");
    de.expect_same("dvalues");
    dt.expect_same("dtarget");
    dmean.expect_same("dvalues of the mean");
  }
}

}  // namespace
}  // namespace weft::kernels
