/// Sequences: the pieces of target attention (DIN, Zhou et al., KDD 2018) and the mean.
///
/// Notation   b samples, n elements in all, D dim. Elements of sample s are rows
///            [offsets[s], offsets[s + 1]) of `values`; offsets are [b + 1], offsets[0] = 0.
/// Attention  element e of sample s with target t = target[s] has the input
///            [e, t, e * t, e - t], 4 D wide, of a small network that gives its weight a, a number
///            without bound; out[s] = Σ a e over the sample's elements. There is no softmax, as in
///            the paper, so that the strength of an interest is kept. An empty sequence gives 0.
/// Order      sums over elements go in their order. Threads: the calling one.
#pragma once

#include <cstdint>

#include "weft/tensor/view.h"

namespace weft::kernels {

/// Elements of one feature: a view. values is [n, D].
struct Sequences {
  Matrix<const float> values;
  const std::int64_t* offsets = nullptr;
  std::int64_t batch = 0;
};

/// inputs[n, 4 D] as above; rows of `inputs` past n are filled with zeros.
void attention_inputs_forward(const Sequences& sequences,
                              Matrix<const float> target,
                              Matrix<float> inputs);

/// dvalues (overwritten) and dtarget (added to) from dinputs[>= n, 4 D].
void attention_inputs_backward(const Sequences& sequences,
                               Matrix<const float> target,
                               Matrix<const float> dinputs,
                               Matrix<float> dvalues,
                               Matrix<float> dtarget);

/// out[s] = Σ a_e e.
void weighted_sum_forward(const Sequences& sequences, const float* weights, Matrix<float> out);

/// dweights[e] = dout[s] · e, by 16 virtual lanes (cpu/lanes-inl.h).
void weighted_sum_backward_weights(const Sequences& sequences,
                                   Matrix<const float> dout,
                                   float* dweights);

/// dvalues[e] += a_e dout[s].
void weighted_sum_backward_values(const Sequences& sequences,
                                  const float* weights,
                                  Matrix<const float> dout,
                                  Matrix<float> dvalues);

/// out[s] = (Σ e) / length; 0 for an empty sequence.
void sequence_mean_forward(const Sequences& sequences, Matrix<float> out);

/// dvalues[e] = dout[s] / length, overwritten.
void sequence_mean_backward(const Sequences& sequences,
                            Matrix<const float> dout,
                            Matrix<float> dvalues);

}  // namespace weft::kernels
