/// Updates of dense weights: one block of the flat buffer at a time, on the calling thread.
///
/// Every element is computed by itself in fp32, without fused multiply-adds, so all targets and
/// any cut into blocks give the same bits. Formulas: optim/dense.h.
#pragma once

#include <cstdint>

namespace weft::kernels {

/// Scalars of one step; those that an optimizer lacks are ignored.
struct DenseUpdate {
  float learning_rate = 0.0F;   ///< Adam: learning rate / (1 - beta1^t)
  float gradient_scale = 1.0F;  ///< of clipping
  float weight_decay = 0.0F;    ///< L2
  float eps = 0.0F;
  float beta1 = 0.0F;
  float beta2 = 0.0F;
  float bias_correction2 = 1.0F;  ///< Adam: sqrt(1 - beta2^t)
};

/// Updates params[count] and the optimizer's state of each in place from grads[count]. REQUIRES:
/// arrays that do not overlap.
void sgd_update(const DenseUpdate& update, std::int64_t count, const float* grads, float* params);
void adagrad_update(
    const DenseUpdate& update, std::int64_t count, const float* grads, float* params, float* sum);
void adam_update(const DenseUpdate& update,
                 std::int64_t count,
                 const float* grads,
                 float* params,
                 float* exp_avg,
                 float* exp_avg_sq);

/// Σ values² in fp64: lane l of 16 adds elements l, l + 16, .. in order; lanes are added in pairs
/// (l, l + 8), (l, l + 4), (l, l + 2), (l, l + 1). Not finite exactly where a value is not: squares
/// of floats and sums of 2^31 of them fit fp64.
double square_sum(const float* values, std::int64_t count);

}  // namespace weft::kernels
