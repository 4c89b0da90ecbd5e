// Internal: [x, v_1 .. v_F] side by side, for the models whose layers see all values at once.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/nn/builder.h"
#include "weft/nn/feature_vectors.h"
#include "weft/nn/lane.h"
#include "weft/nn/mlp.h"

namespace weft::nn {

// x is the bottom MLP's output, or the dense values as they are where there is no bottom MLP, or
// nothing where there are none; then the field of every feature in order. They lie in memory as
// fp32 or, rounded, as bf16; so do the gradients that come back.
class Concatenated {
 public:
  Concatenated() = default;
  Concatenated(Builder& builder,
               const spec::Model& options,
               const ModelShape& shape,
               std::int64_t field_dim,
               DType dtype);

  [[nodiscard]] std::int64_t width() const { return width_; }

  [[nodiscard]] bool has_bottom() const { return !bottom_.empty(); }

  // Returns [b, width]; lane.fields are the features' fields.
  kernels::Operand forward(const Weights& weights, const SliceInput& input, ModelLane& lane) const;

  // What forward returned.
  [[nodiscard]] kernels::Operand values(const SliceInput& input, ModelLane& lane) const;

  // Columns of x in it.
  [[nodiscard]] std::int64_t x_width() const { return x_width_; }

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
  Mlp bottom_;
  FeatureVectors features_;
  DType dtype_ = DType::kFloat32;
  std::int64_t x_width_ = 0;
  std::int64_t width_ = 0;
  std::size_t slot_ = 0;
};

}  // namespace weft::nn
