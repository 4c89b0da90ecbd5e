// Internal: chains of linear layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/nn/builder.h"
#include "weft/nn/lane.h"

namespace weft::nn {

// One linear layer to be made.
struct LayerSpec {
  std::string name;  // of the parameters: name + ".weight", name + ".bias"
  std::int64_t out = 0;
  kernels::Activation activation = kernels::Activation::kNone;
  Bias bias = Bias::kNormal;
};

// Layers "<name>.0", "<name>.1", .. of these widths, ReLU after each.
std::vector<LayerSpec> hidden_layers(const std::string& name,
                                     const std::vector<std::int64_t>& widths);

// y = layer_n(.. layer_1(x)). Products read the type of the computation: in bf16 compute x is
// rounded unless it is bf16 already, and so are weights, the activations between layers and the
// gradients between them; sums and the gradients of weights are fp32. y and dx are rounded if they
// are bf16.
class Mlp {
 public:
  Mlp() = default;
  Mlp(Builder& builder, std::int64_t in, const std::vector<LayerSpec>& layers);

  [[nodiscard]] bool empty() const { return layers_.empty(); }

  [[nodiscard]] std::int64_t out() const { return layers_.back().out; }

  // Writes y [rows of x, out()], and leaves in the lane what backward() reads.
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
  struct Layer {
    std::size_t number = 0;  // in the Builder
    std::int64_t out = 0;
    std::int64_t bias = -1;  // offset, -1 = none
    std::int64_t bias_gradient = 0;
    kernels::Activation activation = kernels::Activation::kNone;
    std::size_t slot = 0;  // of the output, except the last layer's
  };

  // What the gradient of a layer's output y passes first.
  static kernels::GradientEpilogue epilogue(const Layer& layer,
                                            const kernels::ConstOperand& y,
                                            ModelTerms& terms);

  // x in the type of the computation: itself, or the copy made by forward.
  [[nodiscard]] kernels::ConstOperand rounded_input(ModelLane& lane,
                                                    const kernels::ConstOperand& x) const;

  DType dtype_ = DType::kFloat32;
  std::vector<Layer> layers_;
  std::size_t input_slot_ = 0;
};

}  // namespace weft::nn
