/// Interactions between feature vectors: DLRM's pairwise dots and DeepFM's second-order term.
///
/// Notation   b samples, F fields, each a [b, D] view (fields may lie anywhere), D dim.
/// Order      a dot product goes over d in order, sums over fields in the order of fields; DeepFM's
///            sum over d in 16 virtual lanes (cpu/lanes-inl.h). A sample's result does not depend
///            on b. Multiply-adds are fused where the target has them.
/// Threads    on the calling thread.
#pragma once

#include <cstdint>
#include <span>

#include "weft/tensor/view.h"

namespace weft::kernels {

/// Pairs of F fields: F (F - 1) / 2.
inline std::int64_t num_pairs(std::int64_t fields) {
  return fields * (fields - 1) / 2;
}

/// Floats of scratch memory for F fields of D, forward or backward.
inline std::int64_t dot_interaction_scratch(std::int64_t fields, std::int64_t dim) {
  const std::int64_t rows = (fields + 15) / 16 * 16;
  return rows * (2 * ((dim + 15) / 16 * 16) + rows);
}

/// out[s, p(i, j)] = field_i[s] · field_j[s] for i > j, row by row of the strictly lower triangle:
/// (1,0), (2,0), (2,1), (3,0), .. out is [b, F (F - 1) / 2]. `scratch` as above. Cost: b F² D
/// flops.
void dot_interaction_forward(std::span<const Matrix<const float>> fields,
                             Matrix<float> out,
                             float* scratch);

/// d field_i[s] = Σ_{j != i} dout[s, p(i, j)] field_j[s], in the order of j, overwriting; where
/// `accumulate` names the number of leading fields to which it is added instead. `scratch` as
/// above. Cost: 2 b F² D flops.
void dot_interaction_backward(std::span<const Matrix<const float>> fields,
                              Matrix<const float> dout,
                              std::span<const Matrix<float>> dfields,
                              std::int64_t accumulate,
                              float* scratch);

/// Factorisation machine: out[s] = 1/2 Σ_d ((Σ_i field_i[s, d])² - Σ_i field_i[s, d]²);
/// sums[s, d] = Σ_i field_i[s, d] is kept for backward.
void factorization_forward(std::span<const Matrix<const float>> fields,
                           Matrix<float> sums,
                           float* out);

/// d field_i[s, d] += dout[s] (sums[s, d] - field_i[s, d]).
void factorization_backward(std::span<const Matrix<const float>> fields,
                            Matrix<const float> sums,
                            const float* dout,
                            std::span<const Matrix<float>> dfields);

namespace reference {

/// The formulas above in plain loops, without scratch memory, for tests: every sum in the order of
/// its index, in T, which is float or double. Results differ from those above by rounding.
template <typename T>
void dot_interaction_forward(std::span<const Matrix<const T>> fields, Matrix<T> out);
template <typename T>
void dot_interaction_backward(std::span<const Matrix<const T>> fields,
                              Matrix<const T> dout,
                              std::span<const Matrix<T>> dfields,
                              std::int64_t accumulate);
template <typename T>
void factorization_forward(std::span<const Matrix<const T>> fields, Matrix<T> sums, T* out);
template <typename T>
void factorization_backward(std::span<const Matrix<const T>> fields,
                            Matrix<const T> sums,
                            const T* dout,
                            std::span<const Matrix<T>> dfields);

}  // namespace reference
}  // namespace weft::kernels
