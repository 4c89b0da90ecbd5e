/// Private to kernels/cpu: operands laid out for matrix products, once for many of them.
///
/// A product reads its right operand B [k, n] in panels of 64 columns, zeros beyond the edges:
///   fp32   [n/64][k to a multiple of 16][64]
///   bf16   [n/64][k/2, to a multiple of 16][64][2]: two rows interleaved, as the processor's dot
///          products take them
/// which are oneDNN's own blocked layouts (BA16a64b, BA16a64b2a) from AVX-512 on. On AVX2, where
/// panel_product.h multiplies, a panel of fp32 is four strips of 16 columns, one behind the other:
///   fp32   [n/64][4][k to a multiple of 16][16]
/// Where a target has no products of bf16 (has_bf16_products()), B of bf16 is stored as the fp32
/// that its values are: the product of two bf16 is exact in fp32, so an fp32 product of them is one
/// of bf16. A deep B is first cut into layers of rows, each laid out like that: oneDNN does not
/// keep long rows of the left operand in the second cache, and a product in layers is up to 1.6
/// times as fast (k = 3456, bf16 with AMX). Below AVX2, and on other processors, oneDNN's GEMM
/// reads B as it is, and "packed" is row-major.
///
/// Threads     a call runs on the calling thread; ranges of panels may be packed at once.
/// Order       values are moved, or rounded to nearest with ties to even; nothing is added.
/// Cost        memory: 2 or 4 bytes per element and copy; about 0.1-0.3 ns each from the second
///             cache.
#pragma once

#include <cstdint>

#include "weft/base/parts.h"
#include "weft/kernels/operand.h"
#include "weft/layout/products.h"

namespace weft::kernels {

using layout::kPanel;

/// B [rows, cols] of fp32 or bf16 in memory of somebody else.
struct PackedMatrix {
  void* data = nullptr;            ///< on cache lines
  DType dtype = DType::kFloat32;   ///< of its values
  DType stored = DType::kFloat32;  ///< how they lie: layout::Packing::stored()
  std::int64_t rows = 0;
  std::int64_t cols = 0;
  std::int64_t stride = 0;      ///< between rows where it is row-major; 0 where it is in panels
  std::int64_t strip = kPanel;  ///< columns of a panel that lie side by side, row after row

  /// Columns [begin, end) of a matrix of one layer; begin a multiple of kPanel.
  [[nodiscard]] PackedMatrix slice_cols(std::int64_t begin, std::int64_t end) const;

  /// How it is packed.
  [[nodiscard]] layout::Packing packing() const {
    return {.in_panels = stride == 0, .has_bf16_products = stored == dtype, .strip = strip};
  }

  [[nodiscard]] std::int64_t panels() const { return (cols + kPanel - 1) / kPanel; }

  /// How many layers it is cut into, and the rows of one.
  [[nodiscard]] std::int64_t layers() const;
  [[nodiscard]] Range layer_rows(std::int64_t index) const;

  /// One layer, as a matrix of its own.
  [[nodiscard]] PackedMatrix layer(std::int64_t index) const;
};

/// Rows of the packed form: those added are zeros.
std::int64_t packed_rows(DType dtype, std::int64_t rows);

/// Bytes of the packed form of [rows, cols].
std::int64_t packed_bytes(DType dtype, std::int64_t rows, std::int64_t cols);

/// The packed form of [rows, cols] at `data`, not yet filled. Its layout is that of the target in
/// force (target.h).
PackedMatrix packed_matrix(DType dtype, std::int64_t rows, std::int64_t cols, void* data);

/// Fills the panels [range) of `to` from `from` [rows, cols], fp32 or of the same type.
void pack(const ConstOperand& from, const PackedMatrix& to, Range panels);

/// The same from the transposed matrix [cols, rows].
void pack_transposed(const ConstOperand& from, const PackedMatrix& to, Range panels);

/// to [n, m'] = from [m, n] transposed, of one type, and zeros in the last m' - m columns.
void transpose(const ConstOperand& from, const Operand& to);

}  // namespace weft::kernels
