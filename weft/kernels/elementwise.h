/// Elementwise pieces of the dense model. Every element is computed by itself, so results depend
/// on nothing but the operands. Calls run on the calling thread. Views may be strided; an output
/// may be the same view as an input of its type, never a shifted one.
#pragma once

#include <cstdint>

#include "weft/tensor/dtype.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

/// y = x rounded to nearest, ties to even; NaN stays NaN.
void convert(Matrix<const float> x, Matrix<BFloat16> y);
/// y = x, exactly.
void convert(Matrix<const BFloat16> x, Matrix<float> y);
void copy(Matrix<const float> x, Matrix<float> y);
void fill_zero(Matrix<float> y);

/// y += x.
void add(Matrix<const float> x, Matrix<float> y);

/// dx = dy where y > 0, else 0: backward of ReLU from its output y.
void relu_backward(Matrix<const float> y, Matrix<float> dy);
void relu_backward(Matrix<const BFloat16> y, Matrix<BFloat16> dy);

/// Cross layer of DCNv2 once u = W(Vx) + b is known: y = x0 * u + x.
void cross_forward(Matrix<const float> x0,
                   Matrix<const float> u,
                   Matrix<const float> x,
                   Matrix<float> y);

/// Its backward: du = dy * x0 and dx0 += dy * u. (dx = dy is the caller's, who keeps it in place.)
void cross_backward(Matrix<const float> x0,
                    Matrix<const float> u,
                    Matrix<const float> dy,
                    Matrix<float> du,
                    Matrix<float> dx0);

namespace reference {

template <typename T>
void relu_backward(Matrix<const T> y, Matrix<T> dy);
template <typename T>
void cross_forward(Matrix<const T> x0, Matrix<const T> u, Matrix<const T> x, Matrix<T> y);
template <typename T>
void cross_backward(
    Matrix<const T> x0, Matrix<const T> u, Matrix<const T> dy, Matrix<T> du, Matrix<T> dx0);

}  // namespace reference
}  // namespace weft::kernels
