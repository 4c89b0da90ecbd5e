// Internal: chains of linear layers.
#pragma once

#include <cstddef>

#include "weft/layout/dense_model.h"
#include "weft/nn/lane.h"
#include "weft/nn/parameters.h"

namespace weft::nn {

// y = layer_n(.. layer_1(x)). Products read the type of the computation: in bf16 compute x is
// rounded unless it is bf16 already, and so are weights, the activations between layers and the
// gradients between them; sums and the gradients of weights are fp32. y and dx are rounded if they
// are bf16.
class Mlp {
 public:
  // One call's view of a chain of `model`; both outlive it.
  Mlp(const layout::DenseModel& model, const layout::Chain& chain) : model_(model), chain_(chain) {}

  // Writes y [rows of x, out], and leaves in the lane what backward() reads.
  void forward(const Weights& weights,
               ModelLane& lane,
               const kernels::ConstOperand& x,
               const kernels::Operand& y) const;

  // Operands of backward(), for the slice that forward() had last in the same lane.
  struct BackwardArguments {
    kernels::ConstOperand x;  // as in forward
    kernels::ConstOperand y;  // as written by forward; read where the last layer has a ReLU
    kernels::Operand dy;      // changed: ReLU's mask is applied in place; of y's type
    kernels::Operand dx;      // overwritten; null data where it is not wanted
  };

  // Leaves in `terms` the gradients of its biases and the operands of those of its weights.
  void backward(const Weights& weights,
                ModelTerms& terms,
                ModelLane& lane,
                const BackwardArguments& arguments) const;

 private:
  [[nodiscard]] std::size_t size() const { return chain_.layers.size(); }

  [[nodiscard]] const layout::LinearLayer& layer(std::size_t l) const {
    return model_.layers()[chain_.layers[l]];
  }

  // What the gradient of a layer's output y passes first.
  [[nodiscard]] kernels::GradientEpilogue epilogue(std::size_t l,
                                                   const kernels::ConstOperand& y,
                                                   ModelTerms& terms) const;

  // x in the type of the computation: itself, or the copy made by forward.
  [[nodiscard]] kernels::ConstOperand rounded_input(ModelLane& lane,
                                                    const kernels::ConstOperand& x) const;

  const layout::DenseModel& model_;
  const layout::Chain& chain_;
};

}  // namespace weft::nn
