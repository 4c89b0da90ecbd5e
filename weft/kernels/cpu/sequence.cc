// Target attention's pieces and the mean: one pass over the elements of each sample in order,
// vectorised over D. Bytes bound them: an attention input reads D floats and writes 4 D.
#include "weft/kernels/sequence.h"

#include <algorithm>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/sequence.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/kernels/cpu/lanes-inl.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

// to = [e, t, e * t, e - t]
void inputs_row(const float* e, const float* t, float* to, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) {
    to[d] = e[d];
    to[dim + d] = t[d];
    to[2 * dim + d] = e[d] * t[d];
    to[3 * dim + d] = e[d] - t[d];
  }
}

// de = g0 + g2 * t + g3 and dt += g1 + g2 * e - g3
void inputs_backward_row(
    const float* e, const float* t, const float* g, float* de, float* dt, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) {
    de[d] = g[d] + g[2 * dim + d] * t[d] + g[3 * dim + d];
    dt[d] += g[dim + d] + g[2 * dim + d] * e[d] - g[3 * dim + d];
  }
}

// y += a * x, rounded twice: the same on every target.
void scaled_add_row(float a, const float* x, float* y, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) {
    y[d] += a * x[d];
  }
}

void divide_row(const float* x, float by, float* y, std::int64_t dim) {
  for (std::int64_t d = 0; d < dim; ++d) {
    y[d] = x[d] / by;
  }
}

float dot_row(const float* a, const float* b, std::int64_t dim) {
  Lanes sum = zero_lanes();
  std::int64_t d = 0;
  for (; d + kLanes <= dim; d += kLanes) {
    sum = mul_add(load_lanes(a + d), load_lanes(b + d), sum);
  }
  if (d < dim) {
    alignas(64) float x[kLanes] = {};
    alignas(64) float y[kLanes] = {};
    std::copy(a + d, a + dim, x);
    std::copy(b + d, b + dim, y);
    sum = mul_add(load_lanes(x), load_lanes(y), sum);
  }
  return sum_lanes(sum);
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

#include "weft/base/error.h"

namespace weft::kernels {

HWY_EXPORT(inputs_row);
HWY_EXPORT(inputs_backward_row);
HWY_EXPORT(scaled_add_row);
HWY_EXPORT(divide_row);
HWY_EXPORT(dot_row);

namespace {

// Calls visit(sample, element) for every element in order.
template <typename Visit>
void for_each_element(const Sequences& sequences, const Visit& visit) {
  for (std::int64_t s = 0; s < sequences.batch; ++s) {
    for (std::int64_t e = sequences.offsets[s]; e < sequences.offsets[s + 1]; ++e) {
      visit(s, e);
    }
  }
}

void check_shapes(const Sequences& sequences, std::int64_t rows, std::int64_t dim) {
  WEFT_CHECK(rows == sequences.batch && dim == sequences.values.cols &&
                 sequences.offsets[sequences.batch] == sequences.values.rows,
             "sequences of {} samples, {} elements by offsets, values [{}, {}], beside [{}, {}]",
             sequences.batch, sequences.offsets[sequences.batch], sequences.values.rows,
             sequences.values.cols, rows, dim);
}

}  // namespace

void attention_inputs_forward(const Sequences& sequences,
                              Matrix<const float> target,
                              Matrix<float> inputs) {
  check_shapes(sequences, target.rows, target.cols);
  WEFT_CHECK(inputs.rows >= sequences.values.rows && inputs.cols == 4 * target.cols);
  const auto row = HWY_DYNAMIC_DISPATCH(inputs_row);
  for_each_element(sequences, [&](std::int64_t s, std::int64_t e) {
    row(sequences.values.row(e), target.row(s), inputs.row(e), target.cols);
  });
  for (std::int64_t e = sequences.values.rows; e < inputs.rows; ++e) {
    std::fill_n(inputs.row(e), inputs.cols, 0.0F);
  }
}

void attention_inputs_backward(const Sequences& sequences,
                               Matrix<const float> target,
                               Matrix<const float> dinputs,
                               Matrix<float> dvalues,
                               Matrix<float> dtarget) {
  check_shapes(sequences, target.rows, target.cols);
  WEFT_CHECK(dinputs.rows >= sequences.values.rows && dinputs.cols == 4 * target.cols);
  const auto row = HWY_DYNAMIC_DISPATCH(inputs_backward_row);
  for_each_element(sequences, [&](std::int64_t s, std::int64_t e) {
    row(sequences.values.row(e), target.row(s), dinputs.row(e), dvalues.row(e), dtarget.row(s),
        target.cols);
  });
}

void weighted_sum_forward(const Sequences& sequences, const float* weights, Matrix<float> out) {
  check_shapes(sequences, out.rows, out.cols);
  const auto row = HWY_DYNAMIC_DISPATCH(scaled_add_row);
  for (std::int64_t s = 0; s < out.rows; ++s) {
    std::fill_n(out.row(s), out.cols, 0.0F);
  }
  for_each_element(sequences, [&](std::int64_t s, std::int64_t e) {
    row(weights[e], sequences.values.row(e), out.row(s), out.cols);
  });
}

void weighted_sum_backward_weights(const Sequences& sequences,
                                   Matrix<const float> dout,
                                   float* dweights) {
  check_shapes(sequences, dout.rows, dout.cols);
  const auto dot = HWY_DYNAMIC_DISPATCH(dot_row);
  for_each_element(sequences, [&](std::int64_t s, std::int64_t e) {
    dweights[e] = dot(dout.row(s), sequences.values.row(e), dout.cols);
  });
}

void weighted_sum_backward_values(const Sequences& sequences,
                                  const float* weights,
                                  Matrix<const float> dout,
                                  Matrix<float> dvalues) {
  check_shapes(sequences, dout.rows, dout.cols);
  const auto row = HWY_DYNAMIC_DISPATCH(scaled_add_row);
  for_each_element(sequences, [&](std::int64_t s, std::int64_t e) {
    row(weights[e], dout.row(s), dvalues.row(e), dout.cols);
  });
}

void sequence_mean_forward(const Sequences& sequences, Matrix<float> out) {
  check_shapes(sequences, out.rows, out.cols);
  const auto add = HWY_DYNAMIC_DISPATCH(scaled_add_row);
  const auto divide = HWY_DYNAMIC_DISPATCH(divide_row);
  for (std::int64_t s = 0; s < out.rows; ++s) {
    std::fill_n(out.row(s), out.cols, 0.0F);
    const std::int64_t length = sequences.offsets[s + 1] - sequences.offsets[s];
    for (std::int64_t e = sequences.offsets[s]; e < sequences.offsets[s + 1]; ++e) {
      add(1.0F, sequences.values.row(e), out.row(s), out.cols);
    }
    if (length > 1) {
      divide(out.row(s), static_cast<float>(length), out.row(s), out.cols);
    }
  }
}

void sequence_mean_backward(const Sequences& sequences,
                            Matrix<const float> dout,
                            Matrix<float> dvalues) {
  check_shapes(sequences, dout.rows, dout.cols);
  const auto divide = HWY_DYNAMIC_DISPATCH(divide_row);
  for_each_element(sequences, [&](std::int64_t s, std::int64_t e) {
    const std::int64_t length = sequences.offsets[s + 1] - sequences.offsets[s];
    divide(dout.row(s), static_cast<float>(length), dvalues.row(e), dout.cols);
  });
}

}  // namespace weft::kernels

#endif
