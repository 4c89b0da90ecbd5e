/// Sums over samples of a binary task, from which NE, log loss and calibration follow.
/// docs/metrics.md has the formulas.
#pragma once

#include <cstdint>
#include <span>
#include <type_traits>

#include "weft/kernels/binary_sums.h"

namespace weft::metrics {

/// Weighted sums over samples with label y, predicted probability p = sigmoid(logit), weight w:
/// what kernels::sum_binary() writes.
/// Trivially copyable, so ranks exchange it as bytes.
///
/// Determinism: the sums depend on the order of add() and merge(). Inside a part samples are added
/// in their order; parts go up the tree of parts (sum_parts); steps are merged in their order.
/// Then the bits do not depend on ranks or threads.
struct BinarySums : kernels::BinaryTotals {
  /// Adds one sample, as kernels::add_sample() says.
  void add(float logit, float y, float w) { kernels::add_sample(*this, logit, y, w); }

  /// Adds the sums of samples that come later in the stated order.
  void merge(const BinarySums& later);

  /// Normalised entropy: loss ÷ (Σw · H(c)) with c = label_mean(), H(c) = −c ln c − (1−c) ln(1−c).
  /// 1 is what predicting c everywhere gives. Quiet NaN (null in JSON) without weight or when only
  /// one class is present.
  [[nodiscard]] double ne() const;

  /// loss ÷ Σw, in nats; NaN without weight.
  [[nodiscard]] double log_loss() const;

  /// Σw·p ÷ Σw·y: 1 is calibrated, more is too high; NaN without a positive.
  [[nodiscard]] double calibration() const;

  /// Σw·y ÷ Σw, the click rate; NaN without weight.
  [[nodiscard]] double label_mean() const;
};

static_assert(std::is_trivially_copyable_v<BinarySums>);

/// Adds samples [0, n) in order: logits, labels and weights of one part, n = logits.size().
BinarySums sum_samples(std::span<const float> logits,
                       std::span<const float> labels,
                       std::span<const float> weights);

/// The sum of parts [0, P) up the tree of parts (weft/base/parts.h); a part with count 0 is
/// skipped.
BinarySums sum_parts(std::span<const BinarySums> parts);

}  // namespace weft::metrics
