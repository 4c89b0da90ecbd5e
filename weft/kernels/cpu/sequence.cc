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

namespace cpu {

void attention_inputs(Context& /*ctx*/, const AttentionInputs& args) {
  const std::int64_t dim = args.target.cols;
  const std::int64_t elements = args.sequences.values.rows;
  check_shapes(args.sequences, args.target.rows, dim);
  WEFT_CHECK(args.inputs.rows >= elements && args.inputs.cols == 4 * dim);
  const auto row = HWY_DYNAMIC_DISPATCH(inputs_row);
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    row(args.sequences.values.row(e), args.target.row(s), args.inputs.row(e), dim);
  });
  for (std::int64_t e = elements; e < args.inputs.rows; ++e) {
    std::fill_n(args.inputs.row(e), args.inputs.cols, 0.0F);
  }
}

void attention_pool(Context& /*ctx*/, const AttentionPool& args) {
  const Matrix<float>& out = args.out;
  check_shapes(args.sequences, out.rows, out.cols);
  const auto row = HWY_DYNAMIC_DISPATCH(scaled_add_row);
  for (std::int64_t s = 0; s < out.rows; ++s) {
    std::fill_n(out.row(s), out.cols, 0.0F);
  }
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    row(args.weights[e], args.sequences.values.row(e), out.row(s), out.cols);
  });
}

void attention_weights_backward(Context& /*ctx*/, const AttentionWeightsBackward& args) {
  check_shapes(args.sequences, args.dout.rows, args.dout.cols);
  WEFT_CHECK(args.rows >= args.sequences.values.rows, "{} weights for {} elements", args.rows,
             args.sequences.values.rows);
  const auto dot = HWY_DYNAMIC_DISPATCH(dot_row);
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    args.dweights[e] = dot(args.dout.row(s), args.sequences.values.row(e), args.dout.cols);
  });
  std::fill(args.dweights + args.sequences.values.rows, args.dweights + args.rows, 0.0F);
}

void attention_backward(Context& /*ctx*/, const AttentionBackward& args) {
  const std::int64_t dim = args.target.cols;
  check_shapes(args.sequences, args.target.rows, dim);
  check_shapes(args.sequences, args.dout.rows, args.dout.cols);
  WEFT_CHECK(args.dinputs.rows >= args.sequences.values.rows && args.dinputs.cols == 4 * dim);
  const auto inputs = HWY_DYNAMIC_DISPATCH(inputs_backward_row);
  const auto pooled = HWY_DYNAMIC_DISPATCH(scaled_add_row);
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    inputs(args.sequences.values.row(e), args.target.row(s), args.dinputs.row(e),
           args.dvalues.row(e), args.dtarget.row(s), dim);
    pooled(args.weights[e], args.dout.row(s), args.dvalues.row(e), dim);
  });
}

void sequence_mean_forward(Context& /*ctx*/, const MeanForward& args) {
  const Sequences& sequences = args.sequences;
  const Matrix<float>& out = args.out;
  check_shapes(sequences, out.rows, out.cols);
  const auto add_row = HWY_DYNAMIC_DISPATCH(scaled_add_row);
  const auto divide = HWY_DYNAMIC_DISPATCH(divide_row);
  for (std::int64_t s = 0; s < out.rows; ++s) {
    std::fill_n(out.row(s), out.cols, 0.0F);
    const std::int64_t length = sequences.offsets[s + 1] - sequences.offsets[s];
    for (std::int64_t e = sequences.offsets[s]; e < sequences.offsets[s + 1]; ++e) {
      add_row(1.0F, sequences.values.row(e), out.row(s), out.cols);
    }
    if (length > 1) {
      divide(out.row(s), static_cast<float>(length), out.row(s), out.cols);
    }
  }
}

void sequence_mean_backward(Context& /*ctx*/, const MeanBackward& args) {
  check_shapes(args.sequences, args.dout.rows, args.dout.cols);
  const auto divide = HWY_DYNAMIC_DISPATCH(divide_row);
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    const std::int64_t length = args.sequences.offsets[s + 1] - args.sequences.offsets[s];
    divide(args.dout.row(s), static_cast<float>(length), args.dvalues.row(e), args.dout.cols);
  });
}

}  // namespace cpu
}  // namespace weft::kernels

#endif
