// Dense updates: plain loops, compiled once per target for the compiler to vectorise. Bytes bound
// them: Adam reads 16 and writes 12 per weight.
#include "weft/kernels/dense_update.h"

#include <cmath>
#include <cstdint>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/dense_update.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

void sgd_block(DenseUpdate u,
               std::int64_t count,
               const float* HWY_RESTRICT grads,
               float* HWY_RESTRICT params) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = grads[i] * u.gradient_scale + u.weight_decay * params[i];
    params[i] -= u.learning_rate * g;
  }
}

void adagrad_block(DenseUpdate u,
                   std::int64_t count,
                   const float* HWY_RESTRICT grads,
                   float* HWY_RESTRICT params,
                   float* HWY_RESTRICT sum) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = grads[i] * u.gradient_scale + u.weight_decay * params[i];
    sum[i] += g * g;
    params[i] -= u.learning_rate * g / (std::sqrt(sum[i]) + u.eps);
  }
}

void adam_block(DenseUpdate u,
                std::int64_t count,
                const float* HWY_RESTRICT grads,
                float* HWY_RESTRICT params,
                float* HWY_RESTRICT exp_avg,
                float* HWY_RESTRICT exp_avg_sq) {
  for (std::int64_t i = 0; i < count; ++i) {
    const float g = grads[i] * u.gradient_scale + u.weight_decay * params[i];
    exp_avg[i] += (1.0F - u.beta1) * (g - exp_avg[i]);
    exp_avg_sq[i] = u.beta2 * exp_avg_sq[i] + (1.0F - u.beta2) * g * g;
    const float root = std::sqrt(exp_avg_sq[i]) / u.bias_correction2 + u.eps;
    params[i] -= u.learning_rate * exp_avg[i] / root;
  }
}

double square_sum_block(const float* HWY_RESTRICT values, std::int64_t count) {
  constexpr std::int64_t kLanes = 16;
  double lanes[kLanes] = {};
  std::int64_t i = 0;
  for (; i + kLanes <= count; i += kLanes) {
    for (std::int64_t l = 0; l < kLanes; ++l) {
      const double value = values[i + l];
      lanes[l] += value * value;
    }
  }
  for (std::int64_t l = 0; i + l < count; ++l) {
    const double value = values[i + l];
    lanes[l] += value * value;
  }
  for (std::int64_t half = kLanes / 2; half > 0; half /= 2) {
    for (std::int64_t l = 0; l < half; ++l) {
      lanes[l] += lanes[l + half];
    }
  }
  return lanes[0];
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(sgd_block);
HWY_EXPORT(adagrad_block);
HWY_EXPORT(adam_block);
HWY_EXPORT(square_sum_block);

void sgd_update(const DenseUpdate& update, std::int64_t count, const float* grads, float* params) {
  HWY_DYNAMIC_DISPATCH(sgd_block)(update, count, grads, params);
}

void adagrad_update(
    const DenseUpdate& update, std::int64_t count, const float* grads, float* params, float* sum) {
  HWY_DYNAMIC_DISPATCH(adagrad_block)(update, count, grads, params, sum);
}

void adam_update(const DenseUpdate& update,
                 std::int64_t count,
                 const float* grads,
                 float* params,
                 float* exp_avg,
                 float* exp_avg_sq) {
  HWY_DYNAMIC_DISPATCH(adam_block)(update, count, grads, params, exp_avg, exp_avg_sq);
}

double square_sum(const float* values, std::int64_t count) {
  return HWY_DYNAMIC_DISPATCH(square_sum_block)(values, count);
}

}  // namespace weft::kernels

#endif
