#include "weft/optim/sparse.h"

#include <cmath>

#include "weft/base/error.h"
#include "weft/optim/whole_power.h"

namespace weft::optim {
namespace {

kernels::WeightDecay weight_decay(const spec::SparseOptimizer& optimizer) {
  if (optimizer.weight_decay == 0.0) {
    return kernels::WeightDecay::kNone;
  }
  switch (optimizer.weight_decay_mode) {
    case spec::WeightDecayMode::kNone:
      return kernels::WeightDecay::kNone;
    case spec::WeightDecayMode::kL2:
      return kernels::WeightDecay::kL2;
    case spec::WeightDecayMode::kDecoupled:
      return kernels::WeightDecay::kDecoupled;
  }
  fail(ErrorCode::kInternal, "weight decay mode number {} does not exist",
       static_cast<int>(optimizer.weight_decay_mode));
}

float to_fp32(double value) {
  return static_cast<float>(value);
}

}  // namespace

kernels::UpdateParams update_params(const spec::SparseOptimizer& optimizer,
                                    double learning_rate_factor,
                                    std::int64_t step) {
  WEFT_CHECK(step >= 1, "step {}: steps count from 1", step);
  const double learning_rate = optimizer.learning_rate * learning_rate_factor;
  kernels::UpdateParams params;
  params.rule = optimizer.type;
  params.decay = weight_decay(optimizer);
  const bool adam = optimizer.type == SparseOptimizerKind::kAdam ||
                    optimizer.type == SparseOptimizerKind::kRowWiseAdam;
  params.learning_rate = to_fp32(learning_rate);
  params.weight_decay = to_fp32(optimizer.weight_decay);
  params.keep = params.decay == kernels::WeightDecay::kDecoupled && !adam
                    ? to_fp32(1.0 - learning_rate * optimizer.weight_decay)
                    : 1.0F;
  params.eps = to_fp32(optimizer.eps);
  params.beta1 = to_fp32(optimizer.beta1);
  params.one_minus_beta1 = to_fp32(1.0 - optimizer.beta1);
  params.beta2 = to_fp32(optimizer.beta2);
  params.one_minus_beta2 = to_fp32(1.0 - optimizer.beta2);
  params.correction1 = to_fp32(1.0 / (1.0 - whole_power(optimizer.beta1, step)));
  params.correction2 = to_fp32(1.0 / (1.0 - whole_power(optimizer.beta2, step)));
  params.max_norm = to_fp32(optimizer.max_norm);
  params.step = static_cast<std::uint64_t>(step);
  return params;
}

bool has_scaled_moment(const spec::SparseOptimizer& optimizer) {
  return traits(optimizer.type).is_adagrad;
}

spec::SparseOptimizer momentum_scaled(const spec::SparseOptimizer& optimizer, double c) {
  spec::SparseOptimizer scaled = optimizer;
  if (!has_scaled_moment(optimizer) || c == 1.0) {
    return scaled;
  }
  const double root = std::sqrt(c);
  scaled.learning_rate *= root;
  scaled.eps *= root;
  scaled.initial_accumulator *= c;
  if (scaled.weight_decay_mode == spec::WeightDecayMode::kDecoupled) {
    scaled.weight_decay /= root;
  }
  return scaled;
}

float initial_state(const spec::SparseOptimizer& optimizer) {
  return has_scaled_moment(optimizer) ? to_fp32(optimizer.initial_accumulator) : 0.0F;
}

}  // namespace weft::optim
