/// Matrix products of linear layers: the only door to oneDNN.
///
/// Notation   m samples, k inputs, n outputs; W is [n, k], so that y = x Wᵀ + b.
/// Types      fp32, or bf16 operands with sums in fp32; bias and weight gradients are fp32.
/// Threads    every call runs on the calling thread alone. One Matmul belongs to one thread at a
///            time (it keeps primitives and scratch memory); many may run at once.
/// Order      the bits of a result depend on the operands' values, on m, n and k, and on the target
///            (target.h): never on threads, addresses or strides. From AVX-512 on, a row of
///            forward() and backward_data() does not depend on m either; below, oneDNN's kernels
///            differ with m.
/// Strides    compact operands are fastest; strided ones are copied.
/// Cost       2 m n k flops. A shape's first call makes a primitive (milliseconds); later ones look
///            it up, and only oneDNN's own bookkeeping allocates.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/tensor/dtype.h"
#include "weft/tensor/view.h"

namespace weft::kernels {

enum class Activation : std::uint8_t { kNone, kRelu };

/// A matrix to read: fp32 or bf16. stride in elements.
struct ConstOperand {
  const void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  ConstOperand() = default;

  // NOLINTBEGIN(google-explicit-constructor): a parameter type, as T* to const void*
  ConstOperand(Matrix<const float> m)
      : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}

  ConstOperand(Matrix<float> m) : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}

  ConstOperand(Matrix<const BFloat16> m)
      : data(m.data), dtype(DType::kBFloat16), rows(m.rows), cols(m.cols), stride(m.stride) {}

  ConstOperand(Matrix<BFloat16> m)
      : data(m.data), dtype(DType::kBFloat16), rows(m.rows), cols(m.cols), stride(m.stride) {}

  // NOLINTEND(google-explicit-constructor)
};

/// A matrix to write: fp32 or bf16.
struct Operand {
  void* data = nullptr;
  DType dtype = DType::kFloat32;
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;

  Operand() = default;

  // NOLINTBEGIN(google-explicit-constructor): as above
  Operand(Matrix<float> m) : data(m.data), rows(m.rows), cols(m.cols), stride(m.stride) {}

  Operand(Matrix<BFloat16> m)
      : data(m.data), dtype(DType::kBFloat16), rows(m.rows), cols(m.cols), stride(m.stride) {}

  // NOLINTEND(google-explicit-constructor)
};

class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;

  /// y[m, n] = act(x[m, k] · w[n, k]ᵀ + bias[n]); bias may be null. x and w of one dtype; y fp32
  /// or that dtype. Nothing is done when m = 0. Throws Error(kInternal) on shapes that disagree,
  /// Error(kConfig) when oneDNN has no such product.
  void forward(const ConstOperand& x,
               const ConstOperand& w,
               const float* bias,
               Activation activation,
               const Operand& y);

  /// dx[m, k] = dy[m, n] · w[n, k]. dy and w of one dtype.
  void backward_data(const ConstOperand& dy, const ConstOperand& w, const Operand& dx);

  /// dw[n, k] = dy[m, n]ᵀ · x[m, k], fp32 and overwritten; zeros when m = 0.
  void backward_weight(const ConstOperand& dy, const ConstOperand& x, Matrix<float> dw);

  /// db[n] = Σ_m dy[m, n] in fp32, in the order of m; zeros when m = 0.
  static void backward_bias(const ConstOperand& dy, float* db);

  /// Which oneDNN implementation forward() uses for these operands, e.g. "brg:avx512_core".
  const char* implementation(const ConstOperand& x,
                             const ConstOperand& w,
                             const float* bias,
                             Activation activation,
                             const Operand& y);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

namespace reference {

/// The same by plain loops, sums in the order of the index. T is float or double.
template <typename T>
void linear_forward(
    Matrix<const T> x, Matrix<const T> w, const T* bias, Activation activation, Matrix<T> y);
template <typename T>
void linear_backward_data(Matrix<const T> dy, Matrix<const T> w, Matrix<T> dx);
template <typename T>
void linear_backward_weight(Matrix<const T> dy, Matrix<const T> x, Matrix<T> dw);
template <typename T>
void linear_backward_bias(Matrix<const T> dy, T* db);

}  // namespace reference
}  // namespace weft::kernels
