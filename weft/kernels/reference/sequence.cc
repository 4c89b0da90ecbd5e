#include "weft/kernels/sequence.h"

namespace weft::kernels::reference {
namespace {

// Calls body(sample, element) for every element in order.
template <typename Body>
void for_each_element(const Sequences& sequences, const Body& body) {
  for (std::int64_t s = 0; s < sequences.batch; ++s) {
    for (std::int64_t e = sequences.offsets[s]; e < sequences.offsets[s + 1]; ++e) {
      body(s, e);
    }
  }
}

void clear(const Matrix<float>& out) {
  for (std::int64_t s = 0; s < out.rows; ++s) {
    for (std::int64_t d = 0; d < out.cols; ++d) {
      out.row(s)[d] = 0.0F;
    }
  }
}

float length_of(const Sequences& sequences, std::int64_t s) {
  return static_cast<float>(sequences.offsets[s + 1] - sequences.offsets[s]);
}

}  // namespace

void attention_inputs(Context& /*ctx*/, const AttentionInputs& args) {
  clear(args.inputs);
  const std::int64_t dim = args.target.cols;
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const float value = args.sequences.values.row(e)[d];
      const float target = args.target.row(s)[d];
      float* const to = args.inputs.row(e) + d;
      to[0] = value;
      to[dim] = target;
      to[2 * dim] = value * target;
      to[3 * dim] = value - target;
    }
  });
}

void attention_pool(Context& /*ctx*/, const AttentionPool& args) {
  clear(args.out);
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    for (std::int64_t d = 0; d < args.out.cols; ++d) {
      args.out.row(s)[d] += args.weights[e] * args.sequences.values.row(e)[d];
    }
  });
}

void attention_weights_backward(Context& /*ctx*/, const AttentionWeightsBackward& args) {
  for (std::int64_t e = 0; e < args.rows; ++e) {
    args.dweights[e] = 0.0F;
  }
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    double sum = 0.0;
    for (std::int64_t d = 0; d < args.dout.cols; ++d) {
      sum += static_cast<double>(args.dout.row(s)[d]) *
             static_cast<double>(args.sequences.values.row(e)[d]);
    }
    args.dweights[e] = static_cast<float>(sum);
  });
}

void attention_backward(Context& /*ctx*/, const AttentionBackward& args) {
  const std::int64_t dim = args.target.cols;
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    for (std::int64_t d = 0; d < dim; ++d) {
      const float* const g = args.dinputs.row(e) + d;
      const float value = args.sequences.values.row(e)[d];
      const float through_inputs = g[0] + g[2 * dim] * args.target.row(s)[d] + g[3 * dim];
      args.dvalues.row(e)[d] = through_inputs + args.weights[e] * args.dout.row(s)[d];
      args.dtarget.row(s)[d] += g[dim] + g[2 * dim] * value - g[3 * dim];
    }
  });
}

void sequence_mean_forward(Context& /*ctx*/, const MeanForward& args) {
  clear(args.out);
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    for (std::int64_t d = 0; d < args.out.cols; ++d) {
      args.out.row(s)[d] += args.sequences.values.row(e)[d];
    }
  });
  for (std::int64_t s = 0; s < args.out.rows; ++s) {
    const float length = length_of(args.sequences, s);
    for (std::int64_t d = 0; length > 0.0F && d < args.out.cols; ++d) {
      args.out.row(s)[d] /= length;
    }
  }
}

void sequence_mean_backward(Context& /*ctx*/, const MeanBackward& args) {
  for_each_element(args.sequences, [&](std::int64_t s, std::int64_t e) {
    for (std::int64_t d = 0; d < args.dout.cols; ++d) {
      args.dvalues.row(e)[d] = args.dout.row(s)[d] / length_of(args.sequences, s);
    }
  });
}

}  // namespace weft::kernels::reference
