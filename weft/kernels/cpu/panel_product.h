/// Private to kernels/cpu: fp32 products of right operands in strips (pack.h). Matmul takes them on
/// AVX2, where oneDNN has no product that reads packed operands: its GEMM copies both in every
/// call.
///
/// Notation: out[m, n] = a[m, k] · b[k, n], all of fp32; a and out compact.
/// Order      An element is one chain of fused multiply-adds over k, ascending, that begins at
/// zero.
///            So its bits depend on its row of a and its column of b, and not on m, n or addresses.
/// Threads    A call runs on the calling thread.
/// Cost       2 m n k flops, and of the last 16 columns those of all. Nothing is allocated.
/// Source     Goto, van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008.
#pragma once

#include <cstdint>

#include "weft/kernels/linear.h"

namespace weft::kernels {

/// A product and what happens to its elements.
struct PanelProduct {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  const float* bias = nullptr;  ///< [n] is added to each row; or null
  Activation activation = Activation::kNone;
  bool adds = false;  ///< each element, rounded, is added to the old one; without bias, activation
};

/// out = act(a · b + bias), or out += a · b. `b` lies in strips of 16 columns and of k rows rounded
/// up to 16. The processor has AVX2 and FMA; elsewhere, as on Arm, this is right and not fused.
void multiply_panels(const PanelProduct& product, const float* a, const float* b, float* out);

}  // namespace weft::kernels
