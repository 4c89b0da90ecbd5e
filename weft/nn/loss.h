/// Weighted binary cross-entropy with logits over one part.
///
/// The loss of a step is, per task, Σ weight × loss over the global batch divided by Σ weight of
/// that batch as it is, times the task's weight, added over tasks. The caller knows the sums of
/// weights before the part begins and passes scale = task weight / Σ weight, so nothing divides
/// later; a task without weight in a batch has scale 0.
#pragma once

#include <cstdint>
#include <span>

#include "weft/tensor/view.h"

namespace weft::nn {

/// Inputs of one part, b samples and T tasks.
struct LossInput {
  Matrix<const float> logits;    ///< [b, T]
  Matrix<const float> labels;    ///< [b, T], in [0, 1]
  Matrix<const float> weights;   ///< [b, T], >= 0; null data = 1
  std::span<const float> scale;  ///< [T]
};

/// Outputs; null where not wanted.
struct LossOutput {
  Matrix<float> dlogits;        ///< [b, T]: scale × weight × (p - label)
  Matrix<float> probabilities;  ///< [b, T]: p = sigmoid(logit)
  double* loss_sums = nullptr;  ///< [T], overwritten: Σ weight × loss, unscaled, in sample order
};

/// Computes what is asked. Returns the first row whose logit, label or weight gives a loss that is
/// not finite, in any task, also one of weight 0; -1 if there is none. fp64 inside, same bits on
/// every machine.
std::int64_t bce_with_logits(const LossInput& input, const LossOutput& output);

}  // namespace weft::nn
