/// Private to kernels/cpu: pieces of layers that are computed element by element, in fp32; what is
/// stored as bf16 is rounded to nearest, ties to even. Calls run on the calling thread. Views may
/// be strided; an output may be the same view as an input of its type, never a shifted one.
#pragma once

#include "weft/kernels/cross.h"
#include "weft/kernels/linear.h"
#include "weft/kernels/operand.h"

namespace weft::kernels {

/// y = x, rounded where y is bf16 and x is not; NaN stays NaN.
void assign(const ConstOperand& x, const Operand& y);

/// y = x; returns whether all of it is finite.
bool copy_is_finite(Matrix<const float> x, Matrix<float> y);

/// y += x.
void add(Matrix<const float> x, Matrix<float> y);
void add(Matrix<const BFloat16> x, Matrix<BFloat16> y);

/// dy = dy where y > 0, else 0: backward of ReLU from its output y, of one type. Where `sums` is
/// given, [n], it gets column_sums() of the result in the same pass.
void relu_backward(const ConstOperand& y, const Operand& dy, float* sums = nullptr);

/// out[n] = Σ_m x[m, n] in fp32, in the order of m; zeros when m = 0.
void column_sums(const ConstOperand& x, float* out);

/// y = x + bias, and zero below zero with `activation` kRelu; bias [cols] or null. The end of a
/// product that was summed in fp32.
void finish_product(Matrix<const float> x,
                    const float* bias,
                    Activation activation,
                    const Operand& y);

/// Cross layer of DCNv2 once u = W(Vx) + b is known: y = x0 * u + x.
template <typename T>
struct CrossElements {
  Matrix<const T> x0;
  Matrix<const T> u;
  Matrix<const T> x;
  Matrix<T> y;
};

/// Writes c.y. All four views have one shape, else Error(kInternal).
void cross_forward_elements(const CrossElements<float>& c);
void cross_forward_elements(const CrossElements<BFloat16>& c);

/// Its backward: dy += more (null data: nothing), du = dy * x0, dx0 = or += dy * u. The sum dy is
/// kept for the layer below, where it is part of dx.
template <typename T>
struct CrossGradients {
  Matrix<const T> x0;
  Matrix<const T> u;
  Matrix<const T> more;
  Matrix<T> dy;
  Matrix<T> du;
  Matrix<T> dx0;
  CrossSum sum = CrossSum::kAdd;
};

/// Writes c.du and c.dx0, and c.dy where c.more has data. All views have one shape, else
/// Error(kInternal).
void cross_backward_elements(const CrossGradients<float>& c);
void cross_backward_elements(const CrossGradients<BFloat16>& c);

}  // namespace weft::kernels
