#include "weft/kernels/loss.h"

#include <cmath>

#include "weft/base/at.h"

namespace weft::kernels::reference {
namespace {

// What one logit gives.
struct Sample {
  double loss = 0.0;
  double p = 0.0;
};

Sample sample_of(double z, double y) {
  const double e = exact_exp(z < 0.0 ? z : -z);  // at most 1
  const double above = z > 0.0 ? z : 0.0;
  return {.loss = above - z * y + exact_log1p(e), .p = z >= 0.0 ? 1.0 / (1.0 + e) : e / (1.0 + e)};
}

}  // namespace

void bce_loss(Context& /*ctx*/, const BceLoss& args) {
  std::int64_t first_bad = -1;
  for (std::int64_t t = 0; t < args.logits.cols; ++t) {
    double sum = 0.0;
    for (std::int64_t s = 0; s < args.logits.rows; ++s) {
      const double y = args.labels.row(s)[t];
      const double weight = args.weights.data == nullptr ? 1.0 : args.weights.row(s)[t];
      const Sample sample = sample_of(args.logits.row(s)[t], y);
      sum += weight * sample.loss;
      if (!std::isfinite(sample.loss) || !std::isfinite(weight)) {
        first_bad = first_bad < 0 || s < first_bad ? s : first_bad;
      }
      if (args.dlogits.data != nullptr) {
        const double scaled = static_cast<double>(args.scale[at(t)]) * weight;
        args.dlogits.row(s)[t] = static_cast<float>(scaled * (sample.p - y));
      }
      if (args.probabilities.data != nullptr) {
        args.probabilities.row(s)[t] = static_cast<float>(sample.p);
      }
    }
    if (args.loss_sums != nullptr) {
      args.loss_sums[t] = sum;
    }
  }
  if (args.first_bad != nullptr) {
    *args.first_bad = first_bad;
  }
}

}  // namespace weft::kernels::reference
