// Internal: chains of linear layers.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/nn/builder.h"
#include "weft/nn/workspace.h"

namespace weft::nn {

enum class Bias : std::uint8_t { kNone, kNormal, kZero };

struct LayerSpec {
  std::string name;  // of the parameters: name + ".weight", name + ".bias"
  std::int64_t out = 0;
  kernels::Activation activation = kernels::Activation::kNone;
  Bias bias = Bias::kNormal;
};

// Layers "<name>.0", "<name>.1", .. of these widths, ReLU after each.
std::vector<LayerSpec> hidden_layers(const std::string& name,
                                     const std::vector<std::int64_t>& widths);

// y = layer_n(.. layer_1(x)). In bf16 compute the input is rounded to bf16 and so are the weights,
// the activations between layers and the gradients between them; sums, the output, the gradients
// of weights and that of the input are fp32.
class Mlp {
 public:
  Mlp() = default;
  Mlp(Builder& builder, std::int64_t in, const std::vector<LayerSpec>& layers);

  [[nodiscard]] bool empty() const { return layers_.empty(); }

  [[nodiscard]] std::int64_t out() const { return layers_.back().out; }

  void forward(const Weights& weights,
               PartWorkspace& workspace,
               Matrix<const float> x,
               Matrix<float> y) const;

  struct BackwardArguments {
    Matrix<const float> x;  // as in forward
    Matrix<const float> y;  // as written by forward
    Matrix<float> dy;       // changed: ReLU's mask is applied in place
    Matrix<float> dx;       // overwritten; null data where it is not wanted
  };

  // Overwrites the gradients of all its parameters.
  void backward(const Weights& weights,
                PartWorkspace& workspace,
                const BackwardArguments& arguments,
                float* flat_gradients) const;

 private:
  struct Layer {
    std::int64_t in = 0;
    std::int64_t out = 0;
    std::int64_t weight = 0;  // offset
    std::int64_t bias = -1;   // offset, -1 = none
    kernels::Activation activation = kernels::Activation::kNone;
    std::size_t slot = 0;  // of the output, except the last layer's
  };

  template <typename T>
  void forward_as(const Weights& weights,
                  PartWorkspace& workspace,
                  Matrix<const T> x,
                  Matrix<float> y) const;
  template <typename T>
  void backward_as(const Weights& weights,
                   PartWorkspace& workspace,
                   Matrix<const T> x,
                   Matrix<T> dy,
                   Matrix<float> dx,
                   float* flat_gradients) const;

  spec::Compute compute_ = spec::Compute::kFp32;
  std::vector<Layer> layers_;
  std::size_t input_slot_ = 0;  // bf16 copy of x
};

}  // namespace weft::nn
