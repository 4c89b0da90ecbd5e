#include "weft/optim/dense.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/kernels/dense_update.h"
#include "weft/layout/dense_memory.h"
#include "weft/optim/whole_power.h"

namespace weft::optim {

namespace {

kernels::DenseRule rule_of(spec::DenseOptimizerKind kind) {
  switch (kind) {
    case spec::DenseOptimizerKind::kSgd:
      return kernels::DenseRule::kSgd;
    case spec::DenseOptimizerKind::kAdagrad:
      return kernels::DenseRule::kAdagrad;
    case spec::DenseOptimizerKind::kAdam:
      return kernels::DenseRule::kAdam;
  }
  fail(ErrorCode::kInternal, "dense optimizer {}", static_cast<int>(kind));
}

}  // namespace

DenseOptimizer::DenseOptimizer(const spec::DenseOptimizer& options,
                               Device& device,
                               std::int64_t count)
    : options_(options), count_(count), scan_(device) {
  for (const std::string_view kind : layout::dense_states(options.type)) {
    kinds_.emplace_back(kind);
  }
  scan_.resize_for<kernels::GradientScan>(kernels::scan_results(count));
  // Only Adagrad may begin at another value than zero. Gaps between parameters begin there too,
  // which changes nothing: their gradients and weights are zero.
  const float initial = options.type == spec::DenseOptimizerKind::kAdagrad
                            ? static_cast<float>(options.initial_accumulator)
                            : 0.0F;
  const std::vector<float> values(static_cast<std::size_t>(count), initial);
  const std::int64_t bytes = count * static_cast<std::int64_t>(sizeof(float));
  Context ctx{.device = &device};
  for (std::size_t kind = 0; kind < kinds_.size(); ++kind) {
    state_.emplace_back(device, bytes);
    device.copy_to_device(ctx, state_.back().as<float>(), values.data(), bytes);
  }
}

kernels::GradientScan DenseOptimizer::scan(Context& ctx, const float* grads) {
  auto* const results = scan_.as<kernels::GradientScan>();
  kernels::scan_gradient(ctx, {.count = count_, .values = grads, .results = results});
  kernels::GradientScan scanned;
  ctx.device->copy_to_host(ctx, &scanned, results, sizeof scanned);
  return scanned;
}

DenseStep DenseOptimizer::step(
    Context& ctx, float* params, const float* grads, double lr_factor, std::int64_t step) {
  WEFT_CHECK(step >= 1, "step {}", step);
  const kernels::GradientScan scanned = scan(ctx, grads);
  DenseStep result;
  result.first_non_finite = scanned.first_non_finite;
  if (result.first_non_finite >= 0) {
    return result;
  }
  kernels::DenseUpdate update{.rule = rule_of(options_.type),
                              .count = count_,
                              .grads = grads,
                              .params = params,
                              .state0 = kinds_.empty() ? nullptr : state(0),
                              .state1 = kinds_.size() < 2 ? nullptr : state(1)};
  const double learning_rate = options_.learning_rate * lr_factor;
  update.learning_rate = static_cast<float>(learning_rate);
  update.weight_decay = static_cast<float>(options_.weight_decay);
  update.eps = static_cast<float>(options_.eps);
  update.beta1 = static_cast<float>(options_.beta1);
  update.beta2 = static_cast<float>(options_.beta2);
  if (options_.clip_norm > 0.0) {
    result.gradient_norm = std::sqrt(scanned.squares);
    update.gradient_scale =
        static_cast<float>(std::min(1.0, options_.clip_norm / (result.gradient_norm + 1e-6)));
  }
  if (options_.type == spec::DenseOptimizerKind::kAdam) {
    update.learning_rate =
        static_cast<float>(learning_rate / (1.0 - whole_power(options_.beta1, step)));
    update.bias_correction2 =
        static_cast<float>(std::sqrt(1.0 - whole_power(options_.beta2, step)));
  }
  kernels::dense_update(ctx, update);
  return result;
}

}  // namespace weft::optim
