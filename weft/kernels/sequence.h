/// Sequences: what target attention (DIN, Zhou et al., KDD 2018) does around its network, and the
/// mean.
///
/// Notation    b samples of a slice, n elements in all, D dim. Elements of sample s are rows
///             [offsets[s], offsets[s + 1]) of `values`; offsets are [b + 1], offsets[0] = 0.
/// Attention   Element e of sample s with target t = target[s] has the input
///             [e, t, e * t, e - t], 4 D wide, of a small network (linear.h) that gives its weight
///             a, a number without bound; out[s] = Σ a e over the sample's elements. There is no
///             softmax, as in the paper, so that the strength of an interest is kept. An empty
///             sequence gives 0. The network runs on n rows or, so that there are few shapes, on
///             more; the rows behind n are zeros.
/// Memory      Views and offsets are memory of ctx.device.
/// Threads     The calling thread; on CUDA the call is enqueued.
/// Order       Sums over elements go in their order, element by element in fp32 without fused
///             multiply-adds; only the dots of attention_weights_backward() go over D in 16 virtual
///             lanes (cpu/lanes-inl.h), with fused multiply-adds where the target has them.
/// Errors      Error(kInternal) on shapes that disagree.
/// Cost        Bytes: attention_inputs() reads D floats an element and writes 4 D.
#pragma once

#include <cstdint>

#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

/// Elements of one feature: a view. values is [n, D].
struct Sequences {
  Matrix<const float> values;
  const std::int64_t* offsets = nullptr;
  std::int64_t batch = 0;
};

/// Arguments of attention_inputs().
struct AttentionInputs {
  Sequences sequences;
  Matrix<const float> target;  ///< [b, D]
  Matrix<float> inputs;        ///< [n or more, 4 D]
};

/// inputs[e] = [e, t, e * t, e - t]; rows past n are filled with zeros.
void attention_inputs(Context& ctx, const AttentionInputs& args);

/// Arguments of attention_pool().
struct AttentionPool {
  Sequences sequences;
  const float* weights = nullptr;  ///< [n]: a
  Matrix<float> out;               ///< [b, D]
};

/// out[s] = Σ a_e e.
void attention_pool(Context& ctx, const AttentionPool& args);

/// Arguments of attention_weights_backward().
struct AttentionWeightsBackward {
  Sequences sequences;
  Matrix<const float> dout;   ///< [b, D]
  float* dweights = nullptr;  ///< [rows]
  std::int64_t rows = 0;      ///< n or more
};

/// dweights[e] = dout[s] · e; zeros behind n.
void attention_weights_backward(Context& ctx, const AttentionWeightsBackward& args);

/// Arguments of attention_backward().
struct AttentionBackward {
  Sequences sequences;
  Matrix<const float> target;      ///< [b, D]
  const float* weights = nullptr;  ///< [n]: a
  Matrix<const float> dout;        ///< [b, D]
  Matrix<const float> dinputs;     ///< [n or more, 4 D], from the network
  Matrix<float> dvalues;           ///< [n, D], overwritten
  Matrix<float> dtarget;           ///< [b, D], added to
};

/// With g = dinputs[e] in four blocks of D: dvalues[e] = (g0 + g2 * t + g3) + a_e dout[s], and
/// dtarget[s] += g1 + g2 * e - g3.
void attention_backward(Context& ctx, const AttentionBackward& args);

/// Arguments of sequence_mean_forward().
struct MeanForward {
  Sequences sequences;
  Matrix<float> out;  ///< [b, D]
};

/// out[s] = (Σ e) / length; 0 for an empty sequence.
void sequence_mean_forward(Context& ctx, const MeanForward& args);

/// Arguments of sequence_mean_backward().
struct MeanBackward {
  Sequences sequences;
  Matrix<const float> dout;  ///< [b, D]
  Matrix<float> dvalues;     ///< [n, D], overwritten
};

/// dvalues[e] = dout[s] / length.
void sequence_mean_backward(Context& ctx, const MeanBackward& args);

namespace cpu {
/// The same by the CPU's kernels.
void attention_inputs(Context& ctx, const AttentionInputs& args);
void attention_pool(Context& ctx, const AttentionPool& args);
void attention_weights_backward(Context& ctx, const AttentionWeightsBackward& args);
void attention_backward(Context& ctx, const AttentionBackward& args);
void sequence_mean_forward(Context& ctx, const MeanForward& args);
void sequence_mean_backward(Context& ctx, const MeanBackward& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void attention_inputs(Context& ctx, const AttentionInputs& args);
void attention_pool(Context& ctx, const AttentionPool& args);
void attention_weights_backward(Context& ctx, const AttentionWeightsBackward& args);
void attention_backward(Context& ctx, const AttentionBackward& args);
void sequence_mean_forward(Context& ctx, const MeanForward& args);
void sequence_mean_backward(Context& ctx, const MeanBackward& args);
}  // namespace cuda

namespace reference {
/// Plain loops; the dots go over D in order, in fp64.
void attention_inputs(Context& ctx, const AttentionInputs& args);
void attention_pool(Context& ctx, const AttentionPool& args);
void attention_weights_backward(Context& ctx, const AttentionWeightsBackward& args);
void attention_backward(Context& ctx, const AttentionBackward& args);
void sequence_mean_forward(Context& ctx, const MeanForward& args);
void sequence_mean_backward(Context& ctx, const MeanBackward& args);
}  // namespace reference

}  // namespace weft::kernels
