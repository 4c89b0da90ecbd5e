/// How fast matrices of one shape are multiplied: the limit of a dense layer.
///
/// Every thread of the pool makes the same product, single-threaded as Weft calls oneDNN, with
/// operands of its own in the layouts that oneDNN likes best, converted beforehand. So neither
/// packing nor waiting for others is in it, and operands are as warm as caches can hold them. Where
/// the target has no products of bf16 (kernels/target.h) the product is that of fp32. Beside
/// weft/kernels only this and onednn_products.cc call oneDNN: what is measured is oneDNN itself.
///
/// On AVX2 the product is Weft's own (kernels/cpu/panel_product.h), of packed operands. A limit
/// there says nothing about that kernel, which products_bench compares with libraries.
#pragma once

#include <compare>
#include <cstdint>

#include "weft/base/thread_pool.h"
#include "weft/tensor/dtype.h"

namespace weft::bench {

/// out[m, n] = a[m, k] · b[k, n]; a and b of type `in`.
struct GemmShape {
  std::int64_t m = 0;
  std::int64_t n = 0;
  std::int64_t k = 0;
  DType in = DType::kFloat32;
  DType out = DType::kFloat32;

  [[nodiscard]] double flops() const {
    return 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k);
  }

  friend auto operator<=>(const GemmShape&, const GemmShape&) = default;
};

/// From now on oneDNN runs in one thread in the calling thread (weft/kernels/cpu/one_thread.h says
/// why).
void use_one_thread();

/// Flops per second of all threads of the pool together.
double gemm_flops_per_s(ThreadPool& pool, const GemmShape& shape, double budget_s);

}  // namespace weft::bench
