/// The cross layer of DCNv2 (Wang et al., WWW 2021): y = x0 * (W (V x) + b) + x.
///
/// Notation    m samples, d the width of x0 and x, r the rank: V [r, d], W [d, r]; h = V x,
///             u = W h + b. All matrices are compact or strided views of one type, that of the
///             prepared weights.
/// Memory      Of ctx.device. Forward leaves h and u for backward.
/// Threads     The calling thread with one workspace; on CUDA the call is enqueued.
/// Order       Products as linear.h says; what lies between them is computed element by element in
///             fp32, without fused multiply-adds.
/// Errors      Error(kInternal) on shapes or types that disagree.
/// Cost        4 m d r flops forward, 4 m d r backward (8 with the weights' gradients); the
///             elementwise part moves 4 d values a sample forward and up to 8 d backward.
#pragma once

#include <cstddef>
#include <cstdint>

#include "weft/kernels/linear.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels {

/// The two linear layers of a cross layer, and what operations on them need.
struct CrossLayer {
  Workspace* workspace = nullptr;
  const PreparedWeights* weights = nullptr;
  std::size_t v = 0;  ///< number of V among the prepared weights
  std::size_t w = 0;  ///< of W
};

/// Arguments of cross_forward().
struct CrossForward {
  CrossLayer layer;
  const float* bias = nullptr;  ///< [d], or null
  ConstOperand x0;              ///< [m, d]
  ConstOperand x;               ///< [m, d]
  Operand h;                    ///< [m, r], overwritten
  Operand u;                    ///< [m, d], overwritten
  Operand y;                    ///< [m, d], overwritten
};

/// Writes h, u and y.
void cross_forward(Context& ctx, const CrossForward& args);

/// Whether what reaches x0 through a layer begins the sum or is added to it.
enum class CrossSum : std::uint8_t { kBegin, kAdd };

/// Arguments of cross_backward(). The gradient of x is dy + dv; they stay apart, since dy is what
/// the layer below continues with, and adds dv to as its `more`.
struct CrossBackward {
  CrossLayer layer;
  ConstOperand x0;         ///< [m, d]
  ConstOperand x;          ///< [m, d]
  ConstOperand h;          ///< [m, r], of forward
  ConstOperand u;          ///< [m, d], of forward
  ConstOperand more = {};  ///< [m, d], added to dy first; null data: nothing
  Operand dy;              ///< [m, d]
  Operand du;              ///< [m, d], overwritten
  Operand dx0;             ///< [m, d]
  Operand dh;              ///< [m, r], overwritten, compact
  Operand dv;              ///< [m, d], overwritten: of x through W (V x); may be `more`
  CrossSum sum = CrossSum::kAdd;
  float* dbias = nullptr;                  ///< [d], overwritten; null without a bias
  GradientOperands* v_operands = nullptr;  ///< of V's weight gradient
  GradientOperands* w_operands = nullptr;  ///< of W's
};

/// dy += more, du = dy * x0, dx0 = or += dy * u, dbias = Σ over samples of du, dh = du W,
/// dv = dh V; keeps the operands of both weight gradients.
void cross_backward(Context& ctx, const CrossBackward& args);

namespace cpu {
/// The same by the CPU's kernels.
void cross_forward(Context& ctx, const CrossForward& args);
void cross_backward(Context& ctx, const CrossBackward& args);
}  // namespace cpu

namespace cuda {
/// The same on a GPU.
void cross_forward(Context& ctx, const CrossForward& args);
void cross_backward(Context& ctx, const CrossBackward& args);
}  // namespace cuda

namespace reference {
/// The same from the plain loops of linear.h and of the elements.
void cross_forward(Context& ctx, const CrossForward& args);
void cross_backward(Context& ctx, const CrossBackward& args);
}  // namespace reference

}  // namespace weft::kernels
