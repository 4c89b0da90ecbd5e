// Internal: [x, v_1 .. v_F] side by side, for the models whose layers see all values at once.
#pragma once

#include "weft/layout/dense_model.h"
#include "weft/nn/feature_vectors.h"
#include "weft/nn/lane.h"
#include "weft/nn/mlp.h"
#include "weft/nn/parameters.h"

namespace weft::nn {

// Runs what layout/dense_model.h calls Concatenated: x, then the field of every feature in order.
// They lie in memory as fp32 or, rounded, as bf16; so do the gradients that come back.
class Concatenated {
 public:
  // One call's view of it; both outlive it.
  Concatenated(const layout::DenseModel& model, const layout::Concatenated& parts)
      : model_(model), parts_(parts) {}

  // Returns [b, width]; lane.fields are the features' fields.
  kernels::Operand forward(const Weights& weights, const SliceInput& input, ModelLane& lane) const;

  // What forward returned.
  [[nodiscard]] kernels::Operand values(const SliceInput& input, ModelLane& lane) const;

  // Copies dvalues [b, width] to where the gradients of the fields go (lane.dfields).
  void split_gradients(const SliceInput& input,
                       ModelLane& lane,
                       const kernels::ConstOperand& dvalues,
                       SliceGradients& gradients) const;

  // Afterwards: carries dfields and the x columns of dvalues back to features and parameters.
  void backward(const Weights& weights,
                const SliceInput& input,
                ModelTerms& terms,
                ModelLane& lane,
                const kernels::Operand& dvalues,
                SliceGradients& gradients) const;

 private:
  [[nodiscard]] FeatureVectors vectors() const { return {model_, parts_.vectors}; }

  const layout::DenseModel& model_;
  const layout::Concatenated& parts_;
};

}  // namespace weft::nn
