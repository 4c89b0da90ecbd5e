// Internal: the parameters of a model's linear layers, and the weights in force.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/kernels/linear.h"
#include "weft/layout/dense_model.h"
#include "weft/nn/model.h"

namespace weft::nn {

// How a parameter begins; formulas in docs/models.md.
enum class Init : std::uint8_t {
  kWeight,  // N(0, 2 / (in + out)): DLRM's, and Xavier's normal
  kBias,    // N(0, 1 / out): DLRM's
  kZero,
};

// Offsets of a layer's parameters in the flat buffer.
struct LayerPlace {
  std::int64_t weight = 0;
  std::int64_t bias = -1;  // -1 = none
};

// "<name>.weight" and, with a bias, "<name>.bias" of every layer.
struct Parameters {
  ParameterLayout layout;
  std::vector<Init> inits;         // of each parameter
  std::vector<LayerPlace> places;  // of each layer

  explicit Parameters(const std::vector<layout::LinearLayer>& layers);
};

// The weights in force.
struct Weights {
  const float* flat = nullptr;
  const kernels::PreparedWeights* prepared = nullptr;  // of all linear layers
  const LayerPlace* places = nullptr;                  // likewise

  // Of a layer; null where it has no bias.
  [[nodiscard]] const float* bias(std::size_t layer) const {
    return places[layer].bias < 0 ? nullptr : flat + places[layer].bias;
  }
};

// Fills values[count] of a parameter [rows, cols]: a pure function of (seed, name, index).
void initial_values(std::uint64_t seed,
                    const optim::DenseParameter& parameter,
                    Init init,
                    float* values);

}  // namespace weft::nn
