/// Private to kernels/cpu: fp32 products of right operands in strips or panels (pack.h). Matmul
/// takes them on AVX2, where oneDNN has no product that reads packed operands: its GEMM copies both
/// in every call. From AVX-512 on it takes them for the terms of sums, whose operands come from
/// memory: while a block of columns is multiplied, the next block and the next rows are asked for,
/// which oneDNN's products do not do.
///
/// Notation: out[m, n] = a[m, k] · b[k, n], all of fp32; a and out compact.
/// Order      An element is one chain of fused multiply-adds over k, ascending, that begins at
///            zero. So its bits depend on its row of a and its column of b, and not on m, n,
///            strips or addresses.
/// Threads    A call runs on the calling thread.
/// Cost       2 m n k flops, where the last columns count as a multiple of 16: a vector on AVX-512
///            and a strip on AVX2. Nothing is allocated.
/// Source     Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
#pragma once

#include <cstdint>

#include "weft/kernels/linear.h"
#include "weft/layout/products.h"

namespace weft::kernels {

/// A product and what happens to its elements.
struct PanelProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  std::int64_t strip = layout::kStrip;  ///< columns of b that lie side by side: 16 or 64
  const float* bias = nullptr;          ///< [n] is added to each row; or null
  Activation activation = Activation::kNone;
  bool adds = false;  ///< each element, rounded, is added to the old one; without bias, activation
};

/// out = act(a · b + bias), or out += a · b. `b` lies on cache lines, in strips of 16 or of 64
/// columns and of k rows rounded up to 16; there may be anything behind its edges. The processor
/// has AVX2 and FMA; elsewhere, as on Arm, this is right and not fused.
void multiply_panels(const PanelProduct& product, const float* a, const float* b, float* out);

}  // namespace weft::kernels
