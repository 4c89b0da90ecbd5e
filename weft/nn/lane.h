// Internal: the memory of one thread at work, and what it leaves of a slice.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "weft/kernels/weight_gradient.h"
#include "weft/kernels/workspace.h"
#include "weft/nn/builder.h"
#include "weft/nn/model.h"
#include "weft/tensor/arena.h"
#include "weft/tensor/view.h"

namespace weft::nn {

// A slice's operands of the weight gradients of all linear layers, and its gradients of all
// biases.
class ModelTerms final : public SliceTerms {
 public:
  ModelTerms(Device& device, std::size_t layers, std::int64_t biases);

  // Of the weight gradient of a linear layer.
  kernels::GradientOperands* operands(std::size_t layer) { return operands_[layer].get(); }

  // The gradients of all biases, one after the other.
  float* bias_gradients() { return bias_gradients_.at_least_of<float>(biases_); }

 private:
  Arena memory_;
  std::vector<std::unique_ptr<kernels::GradientOperands>> operands_;
  std::int64_t biases_;
  ArenaBlock bias_gradients_;
};

// Activations lie in numbered pieces of memory. A layer takes its numbers from the Builder when the
// model is made, and asks for the memory with the size of the slice at hand: it grows to the
// largest slice and then stays, so what forward wrote is there in backward. The next slice finds
// the same memory, still in the caches.
class ModelLane final : public Lane {
 public:
  ModelLane(Device& device, std::size_t slots);

  // Uninitialised when it grows, else as it was left.
  template <typename T>
  T* get(std::size_t slot, std::int64_t count) {
    return slots_[slot].at_least_of<T>(count);
  }

  // The same as a matrix [rows, cols] without gaps.
  template <typename T>
  Matrix<T> get(std::size_t slot, std::int64_t rows, std::int64_t cols) {
    return matrix(get<T>(slot, rows * cols), rows, cols);
  }

  // The same of a type that is known when the program runs: fp32, else bf16.
  kernels::Operand get(std::size_t slot, DType dtype, std::int64_t rows, std::int64_t cols);

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
  Arena memory_;
  std::vector<ArenaBlock> slots_;
};

}  // namespace weft::nn
