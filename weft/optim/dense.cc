#include "weft/optim/dense.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"
#include "weft/kernels/dense_update.h"
#include "weft/optim/whole_power.h"

namespace weft::optim {

namespace {

// Elements of a block: 16 kB of gradients, enough to outweigh the hand-off to a thread, and fixed,
// since the order of addition of the norm follows it.
constexpr std::int64_t kBlock = 4096;

std::int64_t num_blocks(std::int64_t count) {
  return (count + kBlock - 1) / kBlock;
}

Range block_range(std::int64_t count, std::int64_t block) {
  return {block * kBlock, std::min(count, (block + 1) * kBlock)};
}

template <typename Body>
void for_each_block(Context& ctx, std::int64_t count, const Body& body) {
  const auto task = [&](std::int64_t block) { body(block, block_range(count, block)); };
  if (ctx.pool != nullptr) {
    ctx.pool->parallel_for(num_blocks(count), task);
    return;
  }
  for (std::int64_t block = 0; block < num_blocks(count); ++block) {
    task(block);
  }
}

std::int64_t first_non_finite_in(const float* values, Range range) {
  for (std::int64_t i = range.begin; i < range.end; ++i) {
    if (!std::isfinite(values[i])) {
      return i;
    }
  }
  return -1;
}

}  // namespace

std::int64_t first_non_finite(Context& ctx, const float* values, std::int64_t count) {
  std::vector<std::int64_t> found(static_cast<std::size_t>(num_blocks(count)), -1);
  for_each_block(ctx, count, [&](std::int64_t block, Range range) {
    if (!std::isfinite(kernels::square_sum(values + range.begin, range.size()))) {
      found[static_cast<std::size_t>(block)] = first_non_finite_in(values, range);
    }
  });
  const auto it = std::find_if(found.begin(), found.end(), [](std::int64_t i) { return i >= 0; });
  return it == found.end() ? -1 : *it;
}

DenseOptimizer::DenseOptimizer(const spec::DenseOptimizer& options,
                               Device& device,
                               std::int64_t count)
    : options_(options), count_(count) {
  switch (options.type) {
    case spec::DenseOptimizerKind::kSgd:
      break;
    case spec::DenseOptimizerKind::kAdagrad:
      kinds_ = {"sum"};
      break;
    case spec::DenseOptimizerKind::kAdam:
      kinds_ = {"exp_avg", "exp_avg_sq"};
      break;
  }
  blocks_.resize(static_cast<std::size_t>(num_blocks(count)));
  slots_.resize(static_cast<std::size_t>(tree_slots(std::max<std::int64_t>(1, num_blocks(count)))));
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

DenseOptimizer::Scan DenseOptimizer::scan(Context& ctx, const float* grads) {
  for_each_block(ctx, count_, [&](std::int64_t block, Range range) {
    Scan& result = blocks_[static_cast<std::size_t>(block)];
    result.squares = kernels::square_sum(grads + range.begin, range.size());
    result.first_non_finite =
        std::isfinite(result.squares) ? -1 : first_non_finite_in(grads, range);
  });
  Scan total;
  for (const Scan& block : blocks_) {
    if (block.first_non_finite >= 0) {
      total.first_non_finite = block.first_non_finite;
      return total;
    }
  }
  const auto leaf = [&](Range node, int depth) {
    if (node.size() != 1) {
      return false;
    }
    slots_[static_cast<std::size_t>(depth)] = blocks_[static_cast<std::size_t>(node.begin)].squares;
    return true;
  };
  const auto add = [&](int depth) {
    slots_[static_cast<std::size_t>(depth)] += slots_[static_cast<std::size_t>(depth) + 1];
  };
  if (!blocks_.empty() && sum_tree({0, num_blocks(count_)}, 0, leaf, add)) {
    total.squares = slots_[0];
  }
  return total;
}

DenseStep DenseOptimizer::step(
    Context& ctx, float* params, const float* grads, double lr_factor, std::int64_t step) {
  WEFT_CHECK(step >= 1, "step {}", step);
  const Scan scanned = scan(ctx, grads);
  DenseStep result;
  result.first_non_finite = scanned.first_non_finite;
  if (result.first_non_finite >= 0) {
    return result;
  }
  kernels::DenseUpdate update;
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
  for_each_block(ctx, count_, [&](std::int64_t, Range range) {
    const std::int64_t begin = range.begin;
    switch (options_.type) {
      case spec::DenseOptimizerKind::kSgd:
        kernels::sgd_update(update, range.size(), grads + begin, params + begin);
        break;
      case spec::DenseOptimizerKind::kAdagrad:
        kernels::adagrad_update(update, range.size(), grads + begin, params + begin,
                                state(0) + begin);
        break;
      case spec::DenseOptimizerKind::kAdam:
        kernels::adam_update(update, range.size(), grads + begin, params + begin, state(0) + begin,
                             state(1) + begin);
        break;
    }
  });
  return result;
}

}  // namespace weft::optim
