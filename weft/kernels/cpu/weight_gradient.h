/// Private to kernels/cpu: what weight_gradient.h says, by products of packed operands.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/cpu/matmul.h"
#include "weft/kernels/weight_gradient.h"
#include "weft/layout/products.h"
#include "weft/tensor/host_block.h"

namespace weft::kernels {

/// What one slice contributes to the gradient of one layer: one copy each of x and dy.
class WeightGradientOperands final : public GradientOperands {
 public:
  /// Takes dy [m, n] and x [m, k] of one type.
  void set(const ConstOperand& dy, const ConstOperand& x);

  [[nodiscard]] std::int64_t pieces() const { return lengths_.pieces; }

  /// Rows `rows` of dyᵀ of a piece.
  [[nodiscard]] ConstOperand left(std::int64_t piece, Range rows) const;

  /// Columns `cols` of x of a piece; cols.begin a multiple of kPanel.
  [[nodiscard]] PackedMatrix right(std::int64_t piece, Range cols) const;

 private:
  [[nodiscard]] Range samples(std::int64_t piece) const;
  [[nodiscard]] Operand left(std::int64_t piece) const;
  [[nodiscard]] PackedMatrix right(std::int64_t piece) const;

  DType dtype_ = DType::kFloat32;
  std::int64_t samples_ = 0;
  std::int64_t rows_ = 0;  // n
  std::int64_t cols_ = 0;  // k
  layout::GradientOperands lengths_;
};

/// What a thread needs to sum: partial sums of a tile, one per depth of the tree. Grows, then
/// stays.
class GradientSummer {
 public:
  /// Takes memory for nodes of so many parts.
  void reserve(std::int64_t parts, const GradientTile& tile);

  /// Writes the sum over the parts of one tree node, parts[i] being part node.begin + i, to that
  /// tile of `dw`; zeros where no part has samples. Returns whether all of it is finite.
  bool sum(Matmul& matmul,
           Range node,
           std::span<const PartSlices> parts,
           const GradientTile& tile,
           Matrix<float> dw);

 private:
  struct Slot {
    Matrix<float> values;
    const WeightGradientOperands* pending = nullptr;  // a part of one piece, not yet multiplied
  };

  void sum_part(Matmul& matmul, const PartSlices& part, const GradientTile& tile, Slot& to) const;
  static void settle(Matmul& matmul, const GradientTile& tile, Slot& slot);

  std::vector<Slot> slots_;
  HostBlock memory_;
};

}  // namespace weft::kernels
