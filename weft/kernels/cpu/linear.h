/// Private to kernels/cpu: weights packed for the products of linear layers.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/cpu/pack.h"
#include "weft/kernels/linear.h"
#include "weft/tensor/buffer.h"

namespace weft::kernels {

class PackedWeights final : public PreparedWeights {
 public:
  struct Layer {
    PackedMatrix forward;   ///< W transposed: y = x Wᵀ
    PackedMatrix backward;  ///< W: dx = dy W
  };

  PackedWeights(Context& ctx, DType dtype, std::span<const LinearShape> layers);

  /// Packs all layers, by tasks of ctx.pool.
  void fill(Context& ctx, std::span<const Matrix<const float>> weights);

  [[nodiscard]] const Layer& layer(std::size_t number) const { return layers_[number]; }

 private:
  struct Task {
    std::size_t layer;
    bool forward;
    Range panels;
  };

  Buffer memory_;
  std::vector<Layer> layers_;
  std::vector<Task> tasks_;
};

}  // namespace weft::kernels
