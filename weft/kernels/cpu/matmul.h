/// Private to kernels/cpu: matrix products of linear layers, the only door to oneDNN. On AVX2
/// they are Weft's own (panel_product.h), and so are terms of sums from AVX-512 on that are made in
/// fp32.
///
/// out[m, n] = act(a[m, k] · b[k, n] + bias[n]), or out += a · b. A layer y = x Wᵀ + b with W [n,
/// k] takes three: y = x · pack_transposed(W), dx = dy · pack(W), dW = transpose(dy) · pack(x).
///
/// Types      fp32, or bf16 operands with sums in fp32; bias is fp32. A target without products of
///            bf16 (target.h: has_bf16_products()) multiplies them as the fp32 that they are, in
///            which their products are exact, at the speed of fp32.
/// Threads    every call runs on the calling thread alone. One Matmul belongs to one thread at a
///            time (it keeps primitives and scratch memory); many may run at once.
/// Order      the bits of a result depend on the operands' values, on m, n and k, and on the target
///            (target.h): never on threads, addresses or strides. Without AMX and from AVX2 on, a
///            row of the result does not depend on m either; with AMX oneDNN takes other
///            instructions for very few rows, and below AVX2 its kernels differ with m.
/// Depth      a deep product (PackedMatrix::layers) adds its layers up in fp32, in order.
/// Strides    compact operands on cache lines are fastest; strided ones are copied. AMX loads rows
///            at half the speed where they straddle cache lines.
/// Cost       2 m n k flops. A shape's first call to oneDNN makes a primitive (milliseconds); later
///            ones look it up, and only oneDNN's own bookkeeping allocates.
#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <string>

#include "weft/kernels/cpu/pack.h"
#include "weft/kernels/linear.h"
#include "weft/kernels/operand.h"

namespace weft::kernels {

/// What happens to a product before it is written.
struct Epilogue {
  const float* bias = nullptr;  ///< [n], or null
  Activation activation = Activation::kNone;
};

class Matmul {
 public:
  Matmul();
  ~Matmul();
  Matmul(Matmul&&) noexcept;
  Matmul& operator=(Matmul&&) noexcept;

  /// out = act(a · b + bias). a and b of one type; out fp32 or that type. Nothing is done when m =
  /// 0 or n = 0. Throws Error(kInternal) on shapes that disagree, Error(kConfig) when oneDNN has no
  /// such product.
  void multiply(const ConstOperand& a,
                const PackedMatrix& b,
                const Operand& out,
                const Epilogue& epilogue = {});

  /// The first term of a sum of products: out = a · b, out fp32 and compact. The first call of a
  /// shape also makes what multiply_add() of it needs, and the other way round, so that later calls
  /// allocate nothing, whichever of the two they are.
  void multiply_first(const ConstOperand& a, const PackedMatrix& b, Matrix<float> out);

  /// A later term: out += a · b, out fp32 and compact: each element of the product is rounded to
  /// fp32, then added.
  void multiply_add(const ConstOperand& a, const PackedMatrix& b, Matrix<float> out);

  /// Returns the names of the implementations that calls so far have used: oneDNN's, as
  /// "brg:avx512_core", of which one that begins with "ref" is a plain loop, hundreds of times as
  /// slow as the others, or Weft's, "weft".
  [[nodiscard]] std::set<std::string> implementations() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace weft::kernels
