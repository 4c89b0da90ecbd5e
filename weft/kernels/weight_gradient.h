/// Gradients of linear layers' weights: dW = Σ over samples of dyᵀ · x, by the rule of parts.
///
/// Samples run their backward pass in slices of a part. Each slice leaves the operands of its
/// layers' weight gradients, laid out for the product; then the gradient of a layer is computed
/// tile by tile, all parts of a tile at once, so that a tile and the partial sums of its tree stay
/// in the second cache and only the sum goes to memory. (Whole gradients per part would write and
/// read P · 4 bytes per weight: at 2048 samples more time than the products take.)
///
/// Order       slices of more than kMaxPiece samples are cut in pieces of equal size; a part's
///             pieces are added one after the other, parts up the tree of base/parts.h. A piece is
///             one product. Bits depend on the operands, the cut, and the target.
/// Cost        2 n k flops per sample; from the caches about 4 (m / 256) bytes per weight and part.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/matmul.h"
#include "weft/tensor/host_block.h"

namespace weft::kernels {

/// Samples of a product at most. Rows of dyᵀ are then 512 bytes long in bf16: with 4096, as for
/// 2048 samples at once, all rows of a tile meet in one set of the first cache, at a third of the
/// speed.
inline constexpr std::int64_t kMaxPiece = 256;

/// What one slice contributes to the gradient of one layer. Memory: one copy each of x and dy. It
/// grows to the largest slice seen, then allocates nothing.
class WeightGradientOperands {
 public:
  WeightGradientOperands() = default;

  /// In an arena that outlives it.
  explicit WeightGradientOperands(HostArena& arena) : left_(arena), right_(arena) {}

  /// Takes dy [m, n] and x [m, k] of one type.
  void set(const ConstOperand& dy, const ConstOperand& x);

  /// No samples: nothing to add.
  void clear() { pieces_ = 0; }

  [[nodiscard]] std::int64_t pieces() const { return pieces_; }

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
  std::int64_t pieces_ = 0;
  std::int64_t left_bytes_ = 0;  // of a piece
  std::int64_t right_bytes_ = 0;
  HostBlock left_;
  HostBlock right_;
};

/// The slices of one part, in order; empty where the part has no samples.
using PartSlices = std::span<const WeightGradientOperands* const>;

/// Rows and columns of W that are summed at once.
struct GradientTile {
  Range rows;
  Range cols;
};

/// Tiles that cover [rows, cols].
std::vector<GradientTile> gradient_tiles(std::int64_t rows, std::int64_t cols);

/// What a thread needs to sum: partial sums of a tile, one per depth of the tree. Grows, then
/// stays.
class GradientSummer {
 public:
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
