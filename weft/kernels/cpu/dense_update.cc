// Dense updates: plain loops, compiled once per target for the compiler to vectorise. Bytes bound
// them: Adam reads 16 and writes 12 per weight.
#include "weft/kernels/dense_update.h"

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "weft/base/parts.h"
#include "weft/base/thread_pool.h"

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

namespace {

std::int64_t num_blocks(std::int64_t count) {
  return (count + kDenseBlock - 1) / kDenseBlock;
}

/// Below so many blocks the calling thread does all: eight take it 6 (SGD) to 22 µs (Adam), no more
/// than with a second thread, which has to be woken and waited for.
constexpr std::int64_t kBlocksToShare = 9;

/// Calls body(block, its elements) for all blocks, on the pool where there is one and it pays.
template <typename Body>
void for_each_block(Context& ctx, std::int64_t count, const Body& body) {
  const auto task = [&](std::int64_t block) {
    body(block, Range{block * kDenseBlock, std::min(count, (block + 1) * kDenseBlock)});
  };
  if (ctx.pool != nullptr && num_blocks(count) >= kBlocksToShare) {
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

namespace cpu {

// Behind the result lie those of the blocks, and the slots of their tree.
void scan_gradient(Context& ctx, const ScanGradient& args) {
  GradientScan* const blocks = args.results + 1;
  GradientScan* const slots = blocks + num_blocks(args.count);
  for_each_block(ctx, args.count, [&](std::int64_t block, Range range) {
    GradientScan& result = blocks[block];
    result.squares =
        HWY_DYNAMIC_DISPATCH(square_sum_block)(args.values + range.begin, range.size());
    result.first_non_finite =
        std::isfinite(result.squares) ? -1 : first_non_finite_in(args.values, range);
  });
  GradientScan& total = args.results[0];
  total = {};
  for (std::int64_t block = 0; block < num_blocks(args.count); ++block) {
    if (blocks[block].first_non_finite >= 0) {
      total.first_non_finite = blocks[block].first_non_finite;
      return;
    }
  }
  const auto leaf = [&](Range node, int depth) {
    if (node.size() != 1) {
      return false;
    }
    slots[depth].squares = blocks[node.begin].squares;
    return true;
  };
  const auto add_slots = [&](int depth) { slots[depth].squares += slots[depth + 1].squares; };
  if (args.count > 0 && sum_tree({0, num_blocks(args.count)}, 0, leaf, add_slots)) {
    total.squares = slots[0].squares;
  }
}

void dense_update(Context& ctx, const DenseUpdate& args) {
  for_each_block(ctx, args.count, [&](std::int64_t, Range range) {
    const float* const grads = args.grads + range.begin;
    float* const params = args.params + range.begin;
    switch (args.rule) {
      case DenseRule::kSgd:
        HWY_DYNAMIC_DISPATCH(sgd_block)(args, range.size(), grads, params);
        break;
      case DenseRule::kAdagrad:
        HWY_DYNAMIC_DISPATCH(adagrad_block)
        (args, range.size(), grads, params, args.state0 + range.begin);
        break;
      case DenseRule::kAdam:
        HWY_DYNAMIC_DISPATCH(adam_block)
        (args, range.size(), grads, params, args.state0 + range.begin, args.state1 + range.begin);
        break;
    }
  });
}

}  // namespace cpu
}  // namespace weft::kernels

#endif
