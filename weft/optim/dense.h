/// Dense parameters: their layout in one flat fp32 buffer, their optimizers, and their state as
/// checkpoints see it.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "weft/kernels/dense_update.h"
#include "weft/spec/config.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/state.h"

namespace weft::optim {

/// One matrix of the flat buffer: element (i, j) is flat[offset + i * cols + j]. A vector of n
/// (a bias) is [1, n].
struct DenseParameter {
  std::string name;  ///< e.g. "dense.top.0.weight"
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t offset = 0;  ///< in floats; a multiple of 16 (64 bytes)

  [[nodiscard]] std::int64_t size() const { return rows * cols; }
};

/// All dense parameters of a model in one flat fp32 buffer. The gaps between parameters are zero
/// in weights, gradients and state, always.
class ParameterLayout {
 public:
  /// Appends a parameter and returns its index. Throws Error(kInternal) on a repeated name.
  std::int64_t add(std::string name, std::int64_t rows, std::int64_t cols);

  [[nodiscard]] const std::vector<DenseParameter>& parameters() const { return parameters_; }

  [[nodiscard]] const DenseParameter& operator[](std::int64_t index) const {
    return parameters_[static_cast<std::size_t>(index)];
  }

  /// Floats in the buffer, gaps included; a multiple of 16.
  [[nodiscard]] std::int64_t size() const { return size_; }

  /// Weights in the buffer, gaps excluded.
  [[nodiscard]] std::int64_t num_weights() const;

  /// The parameter that holds flat element `index`; the one before the gap for a gap.
  /// Requires 0 <= index < size().
  [[nodiscard]] const DenseParameter& at(std::int64_t index) const;

  /// Throws Error(kInternal) when there is none of this name.
  [[nodiscard]] const DenseParameter& find(std::string_view name) const;

 private:
  std::vector<DenseParameter> parameters_;
  std::int64_t size_ = 0;
};

/// What one step did.
struct DenseStep {
  std::int64_t first_non_finite =
      -1;                      ///< lowest flat index of such a gradient; then nothing changed
  double gradient_norm = 0.0;  ///< before clipping; computed where clip_norm > 0, else 0
};

/// SGD, Adagrad or Adam over a flat buffer, with g the gradient after clipping and L2 decay:
///
///   clip     g *= min(1, clip_norm / (norm + 1e-6))             when clip_norm > 0
///   decay    g += weight_decay * w
///   sgd      w -= lr g
///   adagrad  sum += g²                                          w -= lr g / (sqrt(sum) + eps)
///   adam     m += (1 - beta1)(g - m),  v = beta2 v + (1 - beta2) g²
///            w -= (lr / (1 - beta1^t)) m / (sqrt(v) / sqrt(1 - beta2^t) + eps)
///
/// as in PyTorch's dense optimizers, lr = learning_rate * lr_factor. The norm is a sum of squares
/// in fp64, in the order of kernels/dense_update.h: no bit depends on the number of threads.
/// State lives on the device. Not thread-safe.
class DenseOptimizer {
 public:
  DenseOptimizer(const spec::DenseOptimizer& options, Device& device, std::int64_t count);

  /// Updates params[count] from grads[count] (left as it is). `step` counts from 1. When a
  /// gradient is not finite nothing is changed and the result says where it is.
  DenseStep step(
      Context& ctx, float* params, const float* grads, double lr_factor, std::int64_t step);

  /// Kinds of state per weight, in order: {}, {"sum"} or {"exp_avg", "exp_avg_sq"}.
  [[nodiscard]] const std::vector<std::string>& state_kinds() const { return kinds_; }

  /// state(i)[count]: the state of kind i, on the device.
  [[nodiscard]] float* state(std::size_t kind) const { return state_[kind].as<float>(); }

  [[nodiscard]] std::int64_t count() const { return count_; }

  [[nodiscard]] const spec::DenseOptimizer& options() const { return options_; }

 private:
  kernels::GradientScan scan(Context& ctx, const float* grads);

  spec::DenseOptimizer options_;
  std::int64_t count_;
  std::vector<std::string> kinds_;
  std::vector<Buffer> state_;
  Buffer scan_;  // results of the gradient's scan
};

/// Who else holds the same dense parameters.
enum class Holder : std::uint8_t {
  kFirst,    ///< this rank saves them and counts them in hashes
  kReplica,  ///< this rank compares
};

/// Weights and optimizer state of every parameter as items (parameter, kind): all "weight" items
/// in the order of the layout, then those of each state kind. Refers to its arguments, which must
/// outlive it. Reads and writes go through the device's copies.
class DenseState final : public StateSource, public StateSink {
 public:
  DenseState(const ParameterLayout& layout,
             Device& device,
             float* params,
             const DenseOptimizer& optimizer,
             Holder holder);

  [[nodiscard]] std::vector<StateItem> state_items() const override;
  void read_state(std::size_t index,
                  std::int64_t row_begin,
                  std::int64_t rows,
                  void* out) const override;
  void write_state(std::size_t index,
                   std::int64_t row_begin,
                   std::int64_t rows,
                   std::int64_t col_begin,
                   std::int64_t col_end,
                   const void* in) override;

 private:
  [[nodiscard]] float* item_data(std::size_t index) const;

  const ParameterLayout& layout_;
  Device& device_;
  float* params_;
  const DenseOptimizer& optimizer_;
  Holder holder_;
};

}  // namespace weft::optim
