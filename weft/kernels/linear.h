/// Linear layers of one slice: y = act(x Wᵀ + b) and back to x, and the weights laid out for it.
///
/// Notation    m samples, W [out, in], x [m, in], y [m, out]. Weights and biases are fp32; x, y
///             and their gradients fp32 or bf16. Products read operands of the type of the
///             prepared weights.
/// Memory      All views are memory of ctx.device and may be strided; compact ones are fastest.
/// Threads     Each call works on the calling thread and uses one workspace, but
///             prepare_weights(), which runs on ctx.pool. A slice has at most 512 samples on the
///             CPU. On CUDA a call is enqueued on the context's stream.
/// Order       The bits of a result depend on the operands' values, on m, in and out, and on the
///             target (target.h): not on threads, addresses or strides. Sums are fp32. Without AMX
///             and from AVX2 on a row does not depend on m either.
/// Errors      Error(kInternal) on shapes or types that disagree.
/// Cost        2 m in out flops a product; the first call of a shape makes a primitive of
///             oneDNN (milliseconds).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "weft/kernels/operand.h"
#include "weft/kernels/workspace.h"
#include "weft/layout/products.h"

namespace weft::kernels {

/// What becomes of a product before it is written: nothing, or zero below zero.
enum class Activation : std::uint8_t { kNone, kRelu };

/// The widths of a linear layer.
using LinearShape = layout::LayerShape;

/// The weights of a model's linear layers as products read them: rounded to the type of the
/// computation and laid out as a backend likes. Each backend derives its own.
class PreparedWeights {
 public:
  PreparedWeights() = default;
  virtual ~PreparedWeights() = default;
  PreparedWeights(const PreparedWeights&) = delete;
  PreparedWeights& operator=(const PreparedWeights&) = delete;
};

/// Makes room for layers of these shapes, numbered from 0, whose products read `dtype`: fp32 or
/// bf16.
std::unique_ptr<PreparedWeights> make_prepared_weights(Context& ctx,
                                                       DType dtype,
                                                       std::span<const LinearShape> layers);

/// Arguments of prepare_weights().
struct PrepareWeights {
  std::span<const Matrix<const float>> weights;  ///< W [out, in] of every layer, compact
  PreparedWeights* to = nullptr;
};

/// Lays out the weights for the products that follow.
void prepare_weights(Context& ctx, const PrepareWeights& args);

/// A layer, and what every operation on it needs.
struct LinearLayer {
  Workspace* workspace = nullptr;
  const PreparedWeights* weights = nullptr;
  std::size_t number = 0;  ///< of the layer among the prepared weights
};

/// Arguments of linear_forward().
struct LinearForward {
  LinearLayer layer;
  const float* bias = nullptr;  ///< [out], or null
  Activation activation = Activation::kNone;
  ConstOperand x;  ///< [m, in], of the type of the prepared weights
  Operand y;       ///< [m, out], of that type or fp32
};

/// y = act(x Wᵀ + b).
void linear_forward(Context& ctx, const LinearForward& args);

/// What a gradient passes on its way out of a layer: the layer's activation, and its bias.
struct GradientEpilogue {
  Activation activation = Activation::kNone;
  ConstOperand y = {};     ///< the layer's output; read where it has a ReLU
  float* dbias = nullptr;  ///< [out], overwritten; null where the layer has no bias
};

/// Arguments of output_backward().
struct OutputBackward {
  GradientEpilogue epilogue;
  Operand dy;  ///< [m, out], changed in place; of the type of epilogue.y
};

/// The beginning of a backward pass: dy = dy where y > 0 and 0 elsewhere behind a ReLU, then
/// dbias = Σ over samples of dy in fp32, in their order.
void output_backward(Context& ctx, const OutputBackward& args);

/// Arguments of linear_backward_inputs().
struct LinearBackwardInputs {
  LinearLayer layer;
  ConstOperand dy;              ///< [m, out], of the type of the prepared weights
  Operand dx;                   ///< [m, in], of that type or fp32
  GradientEpilogue below = {};  ///< of the layer whose output x is
};

/// dx = dy W, then what output_backward() does, for the layer below.
void linear_backward_inputs(Context& ctx, const LinearBackwardInputs& args);

namespace cpu {
/// The same by the CPU's kernels.
std::unique_ptr<PreparedWeights> make_prepared_weights(Context& ctx,
                                                       DType dtype,
                                                       std::span<const LinearShape> layers);
void prepare_weights(Context& ctx, const PrepareWeights& args);
void linear_forward(Context& ctx, const LinearForward& args);
void output_backward(Context& ctx, const OutputBackward& args);
void linear_backward_inputs(Context& ctx, const LinearBackwardInputs& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
std::unique_ptr<PreparedWeights> make_prepared_weights(Context& ctx,
                                                       DType dtype,
                                                       std::span<const LinearShape> layers);
void prepare_weights(Context& ctx, const PrepareWeights& args);
void linear_forward(Context& ctx, const LinearForward& args);
void output_backward(Context& ctx, const OutputBackward& args);
void linear_backward_inputs(Context& ctx, const LinearBackwardInputs& args);
}  // namespace cuda

namespace reference {
/// Plain loops: sums in fp64, so that results differ from the others by their rounding alone. They
/// use no workspace.
std::unique_ptr<PreparedWeights> make_prepared_weights(Context& ctx,
                                                       DType dtype,
                                                       std::span<const LinearShape> layers);
void prepare_weights(Context& ctx, const PrepareWeights& args);
void linear_forward(Context& ctx, const LinearForward& args);
void output_backward(Context& ctx, const OutputBackward& args);
void linear_backward_inputs(Context& ctx, const LinearBackwardInputs& args);
}  // namespace reference

}  // namespace weft::kernels
