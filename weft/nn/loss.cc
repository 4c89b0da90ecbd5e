#include "weft/nn/loss.h"

#include <algorithm>
#include <cmath>

#include "weft/base/error.h"
#include "weft/kernels/loss.h"

namespace weft::nn {

std::int64_t bce_with_logits(const LossInput& input, const LossOutput& output) {
  const std::int64_t tasks = input.logits.cols;
  WEFT_CHECK(input.labels.rows == input.logits.rows && input.labels.cols == tasks,
             "labels [{}, {}] for logits [{}, {}]", input.labels.rows, input.labels.cols,
             input.logits.rows, tasks);
  WEFT_CHECK(
      output.dlogits.data == nullptr || static_cast<std::int64_t>(input.scale.size()) == tasks,
      "{} scales for {} tasks", input.scale.size(), tasks);
  if (output.loss_sums != nullptr) {
    std::fill_n(output.loss_sums, tasks, 0.0);
  }
  std::int64_t first_bad = -1;
  for (std::int64_t s = 0; s < input.logits.rows; ++s) {
    for (std::int64_t t = 0; t < tasks; ++t) {
      const double z = input.logits.row(s)[t];
      const double y = input.labels.row(s)[t];
      const double weight = input.weights.data == nullptr ? 1.0 : input.weights.row(s)[t];
      const double loss = kernels::bce_with_logits(z, y);
      const double p = kernels::sigmoid(z);
      if (first_bad < 0 && !(std::isfinite(loss) && std::isfinite(weight))) {
        first_bad = s;
      }
      if (output.loss_sums != nullptr) {
        output.loss_sums[t] += weight * loss;
      }
      if (output.dlogits.data != nullptr) {
        output.dlogits.row(s)[t] = static_cast<float>(
            static_cast<double>(input.scale[static_cast<std::size_t>(t)]) * weight * (p - y));
      }
      if (output.probabilities.data != nullptr) {
        output.probabilities.row(s)[t] = static_cast<float>(p);
      }
    }
  }
  return first_bad;
}

}  // namespace weft::nn
