#include "weft/nn/mlp.h"

#include <type_traits>

#include <fmt/core.h>

#include "weft/kernels/elementwise.h"

namespace weft::nn {

namespace {

template <typename T>
Matrix<const T> weight_of(const Weights& weights,
                          std::int64_t offset,
                          std::int64_t out,
                          std::int64_t in) {
  if constexpr (std::is_same_v<T, float>) {
    return matrix(weights.flat + offset, out, in);
  } else {
    return matrix(weights.half + offset, out, in);
  }
}

}  // namespace

std::vector<LayerSpec> hidden_layers(const std::string& name,
                                     const std::vector<std::int64_t>& widths) {
  std::vector<LayerSpec> layers;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    layers.push_back({fmt::format("{}.{}", name, i), widths[i], kernels::Activation::kRelu});
  }
  return layers;
}

Mlp::Mlp(Builder& builder, std::int64_t in, const std::vector<LayerSpec>& layers)
    : compute_(builder.compute()) {
  for (const LayerSpec& spec : layers) {
    Layer layer;
    layer.in = in;
    layer.out = spec.out;
    layer.weight = builder.add_parameter(spec.name + ".weight", spec.out, in, Init::kWeight);
    if (spec.bias != Bias::kNone) {
      layer.bias = builder.add_parameter(spec.name + ".bias", 1, spec.out,
                                         spec.bias == Bias::kZero ? Init::kZero : Init::kBias);
    }
    layer.activation = spec.activation;
    layer.slot = builder.add_slot();
    layers_.push_back(layer);
    in = spec.out;
  }
  input_slot_ = builder.add_slot();
}

void Mlp::forward(const Weights& weights,
                  PartWorkspace& workspace,
                  Matrix<const float> x,
                  Matrix<float> y) const {
  if (compute_ == spec::Compute::kFp32) {
    forward_as<float>(weights, workspace, x, y);
    return;
  }
  const Matrix<BFloat16> rounded = workspace.get<BFloat16>(input_slot_, x.rows, x.cols);
  kernels::convert(x, rounded);
  forward_as<BFloat16>(weights, workspace, rounded, y);
}

template <typename T>
void Mlp::forward_as(const Weights& weights,
                     PartWorkspace& workspace,
                     Matrix<const T> x,
                     Matrix<float> y) const {
  for (const Layer& layer : layers_) {
    const Matrix<const T> w = weight_of<T>(weights, layer.weight, layer.out, layer.in);
    const float* bias = layer.bias < 0 ? nullptr : weights.flat + layer.bias;
    if (&layer == &layers_.back()) {
      workspace.matmul.forward(x, w, bias, layer.activation, y);
      return;
    }
    const Matrix<T> out = workspace.get<T>(layer.slot, x.rows, layer.out);
    workspace.matmul.forward(x, w, bias, layer.activation, out);
    x = out;
  }
}

void Mlp::backward(const Weights& weights,
                   PartWorkspace& workspace,
                   const BackwardArguments& arguments,
                   float* flat_gradients) const {
  const Layer& last = layers_.back();
  if (last.activation == kernels::Activation::kRelu) {
    kernels::relu_backward(arguments.y, arguments.dy);
  }
  if (last.bias >= 0) {
    kernels::Matmul::backward_bias(arguments.dy, flat_gradients + last.bias);
  }
  if (compute_ == spec::Compute::kFp32) {
    backward_as<float>(weights, workspace, arguments.x, arguments.dy, arguments.dx, flat_gradients);
    return;
  }
  const std::int64_t rows = arguments.x.rows;
  const Matrix<BFloat16> x = workspace.get<BFloat16>(input_slot_, rows, arguments.x.cols);
  const Matrix<BFloat16> dy =
      workspace.get<BFloat16>(Builder::kGradientSlots[0], rows, arguments.dy.cols);
  kernels::convert(arguments.dy, dy);
  backward_as<BFloat16>(weights, workspace, x, dy, arguments.dx, flat_gradients);
}

// dy is that of the last layer, behind its activation's mask; its bias is done.
template <typename T>
void Mlp::backward_as(const Weights& weights,
                      PartWorkspace& workspace,
                      Matrix<const T> x,
                      Matrix<T> dy,
                      Matrix<float> dx,
                      float* flat_gradients) const {
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const Layer& layer = layers_[l];
    const Matrix<const T> w = weight_of<T>(weights, layer.weight, layer.out, layer.in);
    const Matrix<float> dw = matrix(flat_gradients + layer.weight, layer.out, layer.in);
    if (l == 0) {
      workspace.matmul.backward_weight(dy, x, dw);
      if (dx.data != nullptr) {
        workspace.matmul.backward_data(dy, w, dx);
      }
      return;
    }
    const Layer& below = layers_[l - 1];
    const Matrix<T> in = workspace.get<T>(below.slot, x.rows, below.out);
    workspace.matmul.backward_weight(dy, in, dw);
    // dy of layer l may lie in slot 0 (see backward), so the layers below alternate from slot 1.
    const std::size_t slot = Builder::kGradientSlots[(layers_.size() - l) % 2];
    const Matrix<T> din = workspace.get<T>(slot, x.rows, below.out);
    workspace.matmul.backward_data(dy, w, din);
    if (below.activation == kernels::Activation::kRelu) {
      kernels::relu_backward(in, din);
    }
    if (below.bias >= 0) {
      kernels::Matmul::backward_bias(din, flat_gradients + below.bias);
    }
    dy = din;
  }
}

}  // namespace weft::nn
