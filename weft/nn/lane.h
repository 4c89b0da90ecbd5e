// Internal: the memory of one thread at work, and what it leaves of a slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/base/error.h"
#include "weft/kernels/weight_gradient.h"
#include "weft/kernels/workspace.h"
#include "weft/layout/dense_model.h"
#include "weft/nn/model.h"
#include "weft/nn/parameters.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/view.h"

namespace weft::nn {

// A slice's operands of the weight gradients of all linear layers, and its gradients of all
// biases. `model` outlives it.
class ModelTerms final : public SliceTerms {
 public:
  ModelTerms(Device& device, const layout::DenseModel& model);

  // Forgets the slice before, and makes room for one of this size.
  void begin(const layout::SliceSize& slice);

  // Of the weight gradient of a linear layer.
  kernels::GradientOperands* operands(std::size_t layer) { return operands_[layer].get(); }

  // The gradients of all biases, one after the other.
  float* bias_gradients() { return bias_gradients_; }

  // That of one layer; null where it has no bias.
  float* bias_gradient(std::size_t layer) {
    const layout::LinearLayer& of = model_.layers()[layer];
    return of.bias == layout::Bias::kNone ? nullptr : bias_gradients_ + of.bias_gradient;
  }

 private:
  const layout::DenseModel& model_;
  Buffer memory_;
  std::vector<std::unique_ptr<kernels::GradientOperands>> operands_;
  float* bias_gradients_ = nullptr;
  std::vector<std::int64_t> begins_;  // of each layer's operands, and of the biases
};

// Activations lie in the blocks that the model's description numbers, side by side in one piece of
// memory. It grows to the largest slice and then stays, and within a slice nothing moves, so what
// forward wrote is there in backward. The next slice finds the same memory, still in the caches.
class ModelLane final : public Lane {
 public:
  // `model` outlives it.
  ModelLane(Device& device, const layout::DenseModel& model);

  // Places the blocks for a slice; what lay there is lost.
  void begin(const SliceInput& input);

  // Makes room for slices of up to this size.
  void reserve(const layout::SliceSize& most);

  // The size of a slice: valid until the next call.
  layout::SliceSize size_of(const SliceInput& input);

  // A block of `count` elements, as it was left; uninitialised where nobody has written yet.
  template <typename T>
  T* get(std::size_t block, std::int64_t count) {
    const std::int64_t begin = begins_[block];
    WEFT_CHECK(count * static_cast<std::int64_t>(sizeof(T)) <= begins_[block + 1] - begin,
               "block {} of {} bytes used for {} elements", block, begins_[block + 1] - begin,
               count);
    return reinterpret_cast<T*>(memory_.as<std::byte>() + begin);
  }

  // The same as a matrix [rows, cols] without gaps.
  template <typename T>
  Matrix<T> get(std::size_t block, std::int64_t rows, std::int64_t cols) {
    return matrix(get<T>(block, rows * cols), rows, cols);
  }

  // The same of a type that is known when the program runs.
  kernels::Operand get(std::size_t block,
                       layout::Element element,
                       std::int64_t rows,
                       std::int64_t cols);

  // What operations on a linear layer need.
  [[nodiscard]] kernels::LinearLayer linear(const Weights& weights, std::size_t layer) const {
    return {.workspace = workspace.get(), .weights = weights.prepared, .number = layer};
  }

  // Of the call in hand.
  Context* ctx = nullptr;

  std::unique_ptr<kernels::Workspace> workspace;

  // Of the slice in hand. Vectors are kept here for their capacity.
  const SliceInput* slice = nullptr;
  std::vector<Matrix<const float>> vectors;  // per feature
  std::vector<Matrix<float>> dvectors;       // per feature
  std::vector<Matrix<const float>> fields;   // per field of an interaction
  std::vector<Matrix<float>> dfields;

  // Of the layer whose gradient is summed.
  std::vector<const kernels::GradientOperands*> slices;
  std::vector<kernels::PartSlices> parts;

  // Of the biases.
  std::vector<const float*> bias_slices;
  std::vector<kernels::PartBiases> bias_parts;
  std::vector<kernels::BiasPlace> bias_places;

 private:
  const layout::DenseModel& model_;
  Buffer memory_;
  std::vector<std::int64_t> begins_;    // of each block, and the end
  std::vector<std::int64_t> elements_;  // [features] of the slice
};

}  // namespace weft::nn
