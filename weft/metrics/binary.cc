#include "weft/metrics/binary.h"

#include <array>
#include <cmath>
#include <limits>

#include "weft/base/error.h"
#include "weft/base/parts.h"

namespace weft::metrics {
namespace {

constexpr double kUndefined = std::numeric_limits<double>::quiet_NaN();

double ratio(double numerator, double denominator) {
  return denominator > 0.0 ? numerator / denominator : kUndefined;
}

}  // namespace

void BinarySums::merge(const BinarySums& later) {
  count += later.count;
  weight += later.weight;
  label += later.label;
  loss += later.loss;
  prediction += later.prediction;
}

double BinarySums::ne() const {
  const double c = label_mean();
  if (!(c > 0.0 && c < 1.0)) {
    return kUndefined;
  }
  const double entropy = -c * std::log(c) - (1.0 - c) * std::log1p(-c);
  return loss / (weight * entropy);
}

double BinarySums::log_loss() const {
  return ratio(loss, weight);
}

double BinarySums::calibration() const {
  return ratio(prediction, label);
}

double BinarySums::label_mean() const {
  return ratio(label, weight);
}

BinarySums sum_samples(std::span<const float> logits,
                       std::span<const float> labels,
                       std::span<const float> weights) {
  WEFT_CHECK(labels.size() == logits.size() && weights.size() == logits.size(),
             "{} logits, {} labels, {} weights", logits.size(), labels.size(), weights.size());
  BinarySums sums;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    sums.add(logits[i], labels[i], weights[i]);
  }
  return sums;
}

BinarySums sum_parts(std::span<const BinarySums> parts) {
  if (parts.empty()) {
    return {};
  }
  std::array<BinarySums, 64> slots{};
  sum_tree(
      Range{0, static_cast<std::int64_t>(parts.size())}, 0,
      [&](Range node, int depth) {
        if (node.size() != 1 || parts[static_cast<std::size_t>(node.begin)].count == 0) {
          return false;
        }
        slots[static_cast<std::size_t>(depth)] = parts[static_cast<std::size_t>(node.begin)];
        return true;
      },
      [&](int depth) {
        const auto slot = static_cast<std::size_t>(depth);
        slots[slot].merge(slots[slot + 1]);
      });
  return slots[0];
}

}  // namespace weft::metrics
