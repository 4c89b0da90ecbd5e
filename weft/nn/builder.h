// Internal: what a model collects while its layers are made, and what layers need when they run.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

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

// The weights in force: fp32, and in bf16 compute a rounded copy with the same offsets.
struct Weights {
  const float* flat = nullptr;
  const BFloat16* half = nullptr;
};

class Builder {
 public:
  explicit Builder(spec::Compute compute) : compute_(compute) {}

  std::int64_t add_parameter(const std::string& name,
                             std::int64_t rows,
                             std::int64_t cols,
                             Init init);

  // A piece of workspace memory of its own.
  std::size_t add_slot() { return slots_++; }

  // The two that all layers share for gradients inside them.
  static constexpr std::size_t kGradientSlots[2] = {0, 1};

  [[nodiscard]] spec::Compute compute() const { return compute_; }

  [[nodiscard]] const ParameterLayout& layout() const { return layout_; }

  [[nodiscard]] const std::vector<Init>& inits() const { return inits_; }

  [[nodiscard]] std::size_t slots() const { return slots_; }

 private:
  spec::Compute compute_;
  ParameterLayout layout_;
  std::vector<Init> inits_;
  std::size_t slots_ = 2;
};

// Fills values[count] of a parameter [rows, cols]: a pure function of (seed, name, index).
void initial_values(std::uint64_t seed,
                    const optim::DenseParameter& parameter,
                    Init init,
                    float* values);

}  // namespace weft::nn
