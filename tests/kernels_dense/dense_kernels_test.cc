// Parity of the dense model's other kernels with plain loops in double, at odd shapes and on every
// target that this machine has.
#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "tests/kernels_dense/per_target.h"
#include "weft/kernels/elementwise.h"
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

const std::vector<std::tuple<std::int64_t, std::int64_t, std::int64_t>> kInteractionShapes = {
    {1, 2, 1}, {3, 2, 16}, {2, 5, 7}, {5, 9, 17}, {4, 27, 16}, {2, 27, 64}, {3, 6, 33}, {2, 1, 8}};

TEST_P(DenseKernels, DotInteractionAgreesWithPlainLoops) {
  for (const auto& [rows, count, dim] : kInteractionShapes) {
    SCOPED_TRACE(fmt::format("{} samples, {} fields of {}", rows, count, dim));
    Fields fields(count, rows, dim, 1);
    std::vector<float> scratch(static_cast<std::size_t>(dot_interaction_scratch(count, dim)));
    Numbers out(rows, num_pairs(count), 50);
    dot_interaction_forward(fields.const_views, out.view(), scratch.data());
    reference::dot_interaction_forward<double>(fields.const_plain, out.plain());
    out.expect_same("forward");

    for (const std::int64_t accumulate : {std::int64_t{0}, std::int64_t{1}, count}) {
      Numbers dout(rows, num_pairs(count), 60);
      Fields dfields(count, rows, dim, 70);
      dot_interaction_backward(fields.const_views, dout.view(), dfields.views, accumulate,
                               scratch.data());
      reference::dot_interaction_backward<double>(fields.const_plain, dout.plain(), dfields.plain,
                                                  accumulate);
      dfields.expect_same("backward");
    }
  }
}

TEST_P(DenseKernels, DotInteractionASampleDoesNotDependOnTheOthers) {
  Fields fields(9, 6, 33, 1);
  std::vector<float> scratch(static_cast<std::size_t>(dot_interaction_scratch(9, 33)));
  Numbers whole(6, num_pairs(9), 2);
  dot_interaction_forward(fields.const_views, whole.view(), scratch.data());
  std::vector<Matrix<const float>> last;
  for (const auto& view : fields.const_views) {
    last.push_back(view.slice_rows(5, 6));
  }
  Numbers one(1, num_pairs(9), 3);
  dot_interaction_forward(last, one.view(), scratch.data());
  for (std::int64_t j = 0; j < num_pairs(9); ++j) {
    EXPECT_EQ(one.view().row(0)[j], whole.view().row(5)[j]);
  }
}

TEST_P(DenseKernels, FactorizationAgreesWithPlainLoops) {
  for (const auto& [rows, count, dim] : kInteractionShapes) {
    SCOPED_TRACE(fmt::format("{} samples, {} fields of {}", rows, count, dim));
    Fields fields(count, rows, dim, 1);
    Numbers sums(rows, dim, 40);
    Numbers out(rows, 1, 41, 0);
    factorization_forward(fields.const_views, sums.view(), out.values.data());
    reference::factorization_forward<double>(fields.const_plain, sums.plain(), out.exact.data());
    sums.expect_same("sums");
    out.expect_same("second order", 1e-4);

    Numbers dout(rows, 1, 42, 0);
    Fields dfields(count, rows, dim, 70);
    factorization_backward(fields.const_views, sums.view(), dout.values.data(), dfields.views);
    reference::factorization_backward<double>(fields.const_plain, sums.plain(), dout.exact.data(),
                                              dfields.plain);
    dfields.expect_same("backward");
  }
}

TEST_P(DenseKernels, ElementwiseCrossAndReluAgreeWithPlainLoops) {
  for (const auto& [rows, cols] : {std::pair{1, 1}, {3, 15}, {2, 16}, {5, 17}, {4, 130}}) {
    Numbers x0(rows, cols, 1);
    Numbers u(rows, cols, 2);
    Numbers x(rows, cols, 3);
    Numbers y(rows, cols, 4);
    cross_forward({x0.view(), u.view(), x.view(), y.view()});
    reference::cross_forward<double>({x0.plain(), u.plain(), x.plain(), y.plain()});
    y.expect_same("cross forward");

    for (const CrossSum sum : {CrossSum::kBegin, CrossSum::kAdd}) {
      for (const bool more : {false, true}) {
        Numbers dy(rows, cols, 5);
        Numbers du(rows, cols, 6);
        Numbers dx0(rows, cols, 7);
        Numbers added(rows, cols, 8);
        CrossBackward<float> c{x0.view(), u.view(), {}, dy.view(), du.view(), dx0.view(), sum};
        CrossBackward<double> plain{x0.plain(), u.plain(),   {}, dy.plain(),
                                    du.plain(), dx0.plain(), sum};
        if (more) {
          c.more = added.view();
          plain.more = added.plain();
        }
        cross_backward(c);
        reference::cross_backward<double>(plain);
        dy.expect_same("dy");
        du.expect_same("du");
        dx0.expect_same("dx0");
      }
    }
    Numbers dy(rows, cols, 5);
    x.view().row(0)[0] = 0.0F;
    x.plain().row(0)[0] = 0.0;
    relu_backward(x.view(), dy.view());
    reference::relu_backward<double>(x.plain(), dy.plain());
    dy.expect_same("relu");
    add(Matrix<const float>(x.view()), y.view());
    assign(y.view(), u.view());
    EXPECT_EQ(u.view().row(rows - 1)[cols - 1], y.view().row(rows - 1)[cols - 1]);
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
  cross_backward(CrossBackward<float>{
      x0.exact(), u.exact(), {}, y.exact(), du.exact(), dx0.exact(), CrossSum::kAdd});
  cross_backward(CrossBackward<BFloat16>{
      x0.rounded(), u.rounded(), {}, y.rounded(), du.rounded(), dx0.rounded(), CrossSum::kAdd});
  du.expect_same("du");
  dx0.expect_same("dx0");
  cross_forward(CrossForward<float>{x0.exact(), u.exact(), x.exact(), y.exact()});
  cross_forward(CrossForward<BFloat16>{x0.rounded(), u.rounded(), x.rounded(), y.rounded()});
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
    attention_inputs_forward(sequences, t.view(), inputs.view());
    weighted_sum_forward(sequences, a.values.data(), out.view());
    sequence_mean_forward(sequences, mean.view());
    weighted_sum_backward_weights(sequences, dout.view(), da.values.data());
    attention_inputs_backward(sequences, t.view(), g.view(), de.view(), dt.view());
    weighted_sum_backward_values(sequences, a.values.data(), dout.view(), de.view());
    sequence_mean_backward(sequences, dout.view(), dmean.view());

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
