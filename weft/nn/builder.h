// Internal: what a model collects while its layers are made, and what layers need when they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "weft/kernels/linear.h"
#include "weft/nn/model.h"
#include "weft/spec/config.h"
#include "weft/tensor/dtype.h"

namespace weft::nn {

// How a parameter begins; formulas in docs/models.md.
enum class Init : std::uint8_t {
  kWeight,  // N(0, 2 / (in + out)): DLRM's, and Xavier's normal
  kBias,    // N(0, 1 / out): DLRM's
  kZero,
};

// The bias of a linear layer: none, or one that begins as Init::kBias or as Init::kZero.
enum class Bias : std::uint8_t { kNone, kNormal, kZero };

// One W [out, in] and its bias.
struct LinearLayer {
  std::int64_t in = 0;
  std::int64_t out = 0;
  std::int64_t weight = 0;         // offset in the flat buffer
  std::int64_t bias = -1;          // likewise, -1 = none
  std::int64_t bias_gradient = 0;  // offset in a slice's bias gradients
};

// The weights in force.
struct Weights {
  const float* flat = nullptr;
  const kernels::PreparedWeights* prepared = nullptr;  // of all linear layers
};

// Numbers the parameters, linear layers and slots of a model while its layers are made.
class Builder {
 public:
  explicit Builder(spec::Compute compute) : compute_(compute) {}

  // "<name>.weight" and, with a bias, "<name>.bias". Returns the number of the layer.
  std::size_t add_linear(const std::string& name, std::int64_t in, std::int64_t out, Bias bias);

  // A piece of a lane's memory of its own.
  std::size_t add_slot() { return slots_++; }

  // The two that all layers share for gradients inside them.
  static constexpr std::size_t kGradientSlots[2] = {0, 1};

  // Of the operands of products.
  [[nodiscard]] DType dtype() const {
    return compute_ == spec::Compute::kFp32 ? DType::kFloat32 : DType::kBFloat16;
  }

  [[nodiscard]] const ParameterLayout& layout() const { return layout_; }

  [[nodiscard]] const std::vector<Init>& inits() const { return inits_; }

  [[nodiscard]] const std::vector<LinearLayer>& layers() const { return layers_; }

  // Floats of all biases.
  [[nodiscard]] std::int64_t biases() const { return biases_; }

  [[nodiscard]] std::size_t slots() const { return slots_; }

 private:
  std::int64_t add_parameter(const std::string& name,
                             std::int64_t rows,
                             std::int64_t cols,
                             Init init);

  spec::Compute compute_;
  ParameterLayout layout_;
  std::vector<Init> inits_;
  std::vector<LinearLayer> layers_;
  std::int64_t biases_ = 0;
  std::size_t slots_ = 2;
};

// Fills values[count] of a parameter [rows, cols]: a pure function of (seed, name, index).
void initial_values(std::uint64_t seed,
                    const optim::DenseParameter& parameter,
                    Init init,
                    float* values);

}  // namespace weft::nn
