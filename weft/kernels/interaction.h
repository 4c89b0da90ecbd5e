/// Interactions between feature vectors: DLRM's pairwise dots and DeepFM's second-order term.
///
/// Notation    b samples of a slice, F fields, each a [b, D] view (fields may lie anywhere), D dim.
/// Memory      Views are memory of ctx.device; lists of them are host memory, read at once.
/// Threads     The calling thread; on CUDA the call is enqueued.
/// Order       On the CPU a dot product goes over d in order, sums over fields in the order of
///             fields; DeepFM's sum over d in 16 virtual lanes (cpu/lanes-inl.h). A sample's result
///             does not depend on b. Multiply-adds are fused where the target has them, so results
///             of targets and backends differ by rounding.
/// Errors      Error(kInternal) on shapes that disagree.
#pragma once

#include <cstdint>
#include <span>

#include "weft/layout/products.h"
#include "weft/tensor/device.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

using layout::dot_interaction_scratch;
using layout::num_pairs;

/// Arguments of dot_interaction_forward().
struct DotForward {
  std::span<const Matrix<const float>> fields;
  Matrix<float> out;         ///< [b, F (F - 1) / 2]
  float* scratch = nullptr;  ///< dot_interaction_scratch() floats; a backend may leave them
};

/// out[s, p(i, j)] = field_i[s] · field_j[s] for i > j, row by row of the strictly lower triangle:
/// (1,0), (2,0), (2,1), (3,0), .. Cost: b F² D flops.
void dot_interaction_forward(Context& ctx, const DotForward& args);

/// Arguments of dot_interaction_backward().
struct DotBackward {
  std::span<const Matrix<const float>> fields;
  Matrix<const float> dout;
  std::span<const Matrix<float>> dfields;
  std::int64_t accumulate = 0;  ///< leading fields to whose gradients is added; others overwritten
  float* scratch = nullptr;     ///< as in DotForward
};

/// d field_i[s] = Σ_{j != i} dout[s, p(i, j)] field_j[s], in the order of j, overwriting, or added
/// to what is there. Cost: 2 b F² D flops.
void dot_interaction_backward(Context& ctx, const DotBackward& args);

/// Arguments of factorization_forward().
struct FactorizationForward {
  std::span<const Matrix<const float>> fields;
  Matrix<float> sums;    ///< [b, D], kept for backward
  float* out = nullptr;  ///< [b]
};

/// Factorisation machine: out[s] = 1/2 Σ_d ((Σ_i field_i[s, d])² - Σ_i field_i[s, d]²);
/// sums[s, d] = Σ_i field_i[s, d].
void factorization_forward(Context& ctx, const FactorizationForward& args);

/// Arguments of factorization_backward().
struct FactorizationBackward {
  std::span<const Matrix<const float>> fields;
  Matrix<const float> sums;
  const float* dout = nullptr;  ///< [b]
  std::span<const Matrix<float>> dfields;
};

/// d field_i[s, d] += dout[s] (sums[s, d] - field_i[s, d]).
void factorization_backward(Context& ctx, const FactorizationBackward& args);

namespace cpu {
/// The same by the CPU's kernels.
void dot_interaction_forward(Context& ctx, const DotForward& args);
void dot_interaction_backward(Context& ctx, const DotBackward& args);
void factorization_forward(Context& ctx, const FactorizationForward& args);
void factorization_backward(Context& ctx, const FactorizationBackward& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void dot_interaction_forward(Context& ctx, const DotForward& args);
void dot_interaction_backward(Context& ctx, const DotBackward& args);
void factorization_forward(Context& ctx, const FactorizationForward& args);
void factorization_backward(Context& ctx, const FactorizationBackward& args);
}  // namespace cuda

namespace reference {
/// Plain loops without scratch memory: every sum in the order of its index, in fp64.
void dot_interaction_forward(Context& ctx, const DotForward& args);
void dot_interaction_backward(Context& ctx, const DotBackward& args);
void factorization_forward(Context& ctx, const FactorizationForward& args);
void factorization_backward(Context& ctx, const FactorizationBackward& args);
}  // namespace reference

}  // namespace weft::kernels
