#include "weft/kernels/dense_update.h"

#include <algorithm>
#include <cmath>

#include "weft/base/parts.h"

namespace weft::kernels::reference {
namespace {

double square_sum(const float* values, std::int64_t count) {
  double lanes[16] = {};
  for (std::int64_t i = 0; i < count; ++i) {
    lanes[i % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (int half = 8; half > 0; half /= 2) {
    for (int l = 0; l < half; ++l) {
      lanes[l] += lanes[l + half];
    }
  }
  return lanes[0];
}

// Blocks [begin, end) up their tree.
double tree_sum(const ScanGradient& args, std::int64_t begin, std::int64_t end) {
  if (end - begin == 1) {
    const std::int64_t first = begin * kDenseBlock;
    return square_sum(args.values + first, std::min(kDenseBlock, args.count - first));
  }
  const std::int64_t split = tree_split(begin, end);
  return tree_sum(args, begin, split) + tree_sum(args, split, end);
}

}  // namespace

void scan_gradient(Context& /*ctx*/, const ScanGradient& args) {
  GradientScan result;
  for (std::int64_t i = args.count; i-- > 0;) {
    if (!std::isfinite(args.values[i])) {
      result.first_non_finite = i;
    }
  }
  if (args.count > 0 && result.first_non_finite < 0) {
    result.squares = tree_sum(args, 0, (args.count + kDenseBlock - 1) / kDenseBlock);
  }
  args.results[0] = result;
}

void dense_update(Context& /*ctx*/, const DenseUpdate& args) {
  for (std::int64_t i = 0; i < args.count; ++i) {
    float& w = args.params[i];
    const float g = args.grads[i] * args.gradient_scale + args.weight_decay * w;
    switch (args.rule) {
      case DenseRule::kSgd:
        w -= args.learning_rate * g;
        break;
      case DenseRule::kAdagrad:
        args.state0[i] += g * g;
        w -= args.learning_rate * g / (std::sqrt(args.state0[i]) + args.eps);
        break;
      case DenseRule::kAdam: {
        float& m = args.state0[i];
        float& v = args.state1[i];
        m += (1.0F - args.beta1) * (g - m);
        v = args.beta2 * v + (1.0F - args.beta2) * g * g;
        w -= args.learning_rate * m / (std::sqrt(v) / args.bias_correction2 + args.eps);
        break;
      }
    }
  }
}

}  // namespace weft::kernels::reference
