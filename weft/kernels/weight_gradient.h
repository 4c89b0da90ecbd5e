/// Gradients of linear layers' weights and biases: dW = Σ over samples of dyᵀ · x, and of dy, by
/// the rule of parts.
///
/// Samples run their backward pass in slices of a part. Each slice leaves the operands of its
/// layers' weight gradients, laid out for the product; then the gradient of a layer is computed
/// tile by tile, all parts of a tile at once, so that on the CPU a tile and the partial sums of its
/// tree stay in the second cache and only the sum goes to memory. (Whole gradients per part would
/// write and read P · 4 bytes per weight: at 2048 samples more time than the products take.)
///
/// Notation    m samples of a slice, W [n, k], dy [m, n], x [m, k].
/// Memory      All views are memory of ctx.device, and so is where operands lie.
/// Threads     The calling thread with one workspace; tiles may be summed at once. On CUDA calls
///             are enqueued.
/// Order       A slice is cut into pieces of equal size, of at most 256 samples; a part's pieces
///             are added one after the other, parts up the tree of base/parts.h; a part without
///             samples is skipped. A piece is one product. Bits depend on the operands, the cut,
///             and the target.
/// Errors      Error(kInternal) on shapes or types that disagree.
/// Cost        2 n k flops per sample; from the caches about 4 (m / 256) bytes per weight and part.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/linear.h"
#include "weft/kernels/operand.h"
#include "weft/kernels/workspace.h"
#include "weft/layout/products.h"

namespace weft::kernels {

/// What one slice contributes to the gradient of one layer's weights: one copy each of x and dy, or
/// whatever a backend keeps of them, in memory of the caller's.
class GradientOperands {
 public:
  GradientOperands() = default;
  virtual ~GradientOperands() = default;
  GradientOperands(const GradientOperands&) = delete;
  GradientOperands& operator=(const GradientOperands&) = delete;

  /// From now on they lie in `memory` of the device, which begins on a cache line, has `bytes`,
  /// gradient_operands_bytes() of the slice to come, and outlives them. What was kept is forgotten.
  void lie_at(void* memory, std::int64_t bytes) {
    memory_ = memory;
    bytes_ = bytes;
  }

 protected:
  void* memory_ = nullptr;
  std::int64_t bytes_ = 0;
};

/// Makes operands that lie nowhere yet.
std::unique_ptr<GradientOperands> make_gradient_operands(Context& ctx);

/// Bytes of the operands of a slice of so many samples: whole cache lines.
std::int64_t gradient_operands_bytes(Context& ctx,
                                     DType dtype,
                                     std::int64_t samples,
                                     const LinearShape& layer);

/// Arguments of keep_operands().
struct KeepOperands {
  ConstOperand dy;  ///< [m, n], fp32 or bf16
  ConstOperand x;   ///< [m, k], of the same type
  GradientOperands* to = nullptr;
};

/// Keeps what the layer's weight gradient needs of a slice; `to` forgets the slice before.
void keep_operands(Context& ctx, const KeepOperands& args);

/// Rows and columns of W that are summed at once.
using layout::GradientTile;

/// Tiles that cover W, as they suit ctx.device.
std::vector<GradientTile> gradient_tiles(Context& ctx, const LinearShape& layer);

/// The slices of one part, in order; empty where the part has no samples.
using PartSlices = std::span<const GradientOperands* const>;

/// Arguments of sum_weight_gradient(). The lists are host memory that the call reads at once.
struct WeightGradient {
  Workspace* workspace = nullptr;
  Range node;                         ///< of the tree of parts
  std::int64_t most_parts = 0;        ///< of a later node: memory is taken for so many
  std::span<const PartSlices> parts;  ///< parts[i]: part node.begin + i
  GradientTile tile;
  Matrix<float> dw;                  ///< [n, k]; the call writes the tile
  std::int32_t* infinite = nullptr;  ///< one word: 1 where a sum is not finite, else 0
};

/// Writes a tile of the sum over the parts of one tree node; zeros where no part has samples.
void sum_weight_gradient(Context& ctx, const WeightGradient& args);

/// One bias among those of a model.
struct BiasPlace {
  std::int64_t begin = 0;  ///< of its elements in a slice's gradients
  std::int64_t size = 0;
  float* to = nullptr;  ///< [size], of the sum
};

/// The gradients of all biases of a part's slices, each [count]; empty where it has no samples.
using PartBiases = std::span<const float* const>;

/// Arguments of sum_bias_gradients().
struct BiasGradients {
  Workspace* workspace = nullptr;
  Range node;
  std::int64_t most_parts = 0;        ///< as in WeightGradient
  std::span<const PartBiases> parts;  ///< parts[i]: part node.begin + i
  std::int64_t count = 0;
  std::span<const BiasPlace> places;
  std::int32_t* infinite = nullptr;  ///< as in WeightGradient
};

/// Writes the sums of all biases: a part's slices one after the other, parts up the tree, in fp32;
/// zeros where no part has samples. All backends give the same bits.
void sum_bias_gradients(Context& ctx, const BiasGradients& args);

namespace cpu {
/// The same by the CPU's kernels.
std::unique_ptr<GradientOperands> make_gradient_operands(Context& ctx);
std::int64_t gradient_operands_bytes(Context& ctx,
                                     DType dtype,
                                     std::int64_t samples,
                                     const LinearShape& layer);
void keep_operands(Context& ctx, const KeepOperands& args);
std::vector<GradientTile> gradient_tiles(Context& ctx, const LinearShape& layer);
void sum_weight_gradient(Context& ctx, const WeightGradient& args);
void sum_bias_gradients(Context& ctx, const BiasGradients& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
std::unique_ptr<GradientOperands> make_gradient_operands(Context& ctx);
std::int64_t gradient_operands_bytes(Context& ctx,
                                     DType dtype,
                                     std::int64_t samples,
                                     const LinearShape& layer);
void keep_operands(Context& ctx, const KeepOperands& args);
std::vector<GradientTile> gradient_tiles(Context& ctx, const LinearShape& layer);
void sum_weight_gradient(Context& ctx, const WeightGradient& args);
void sum_bias_gradients(Context& ctx, const BiasGradients& args);
}  // namespace cuda

namespace reference {
/// Plain loops over any tile; products in fp64, a slice being one piece. Operands have memory of
/// their own.
std::unique_ptr<GradientOperands> make_gradient_operands(Context& ctx);
void keep_operands(Context& ctx, const KeepOperands& args);
void sum_weight_gradient(Context& ctx, const WeightGradient& args);
void sum_bias_gradients(Context& ctx, const BiasGradients& args);
}  // namespace reference

}  // namespace weft::kernels
