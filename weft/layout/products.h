/// Lengths of what products of matrices need beside their operands: packed right operands, what is
/// kept for the gradients of weights, copies, partial sums.
///
/// Notation: a product is out[m, n] = a[m, k] · b[k, n]. b lies packed, in panels of 64 columns
/// where the target has them (kernels/cpu/pack.h has the layout), and a deep b in layers of rows
/// besides.
/// Plain values and pure functions; bytes where nothing else is said.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/layout/blocks.h"

namespace weft::layout {

/// Types of elements of the dense side.
enum class Element : std::uint8_t { kFp32, kBf16 };

inline constexpr std::int64_t kFloatBytes = 4;  ///< of an fp32

/// Bytes of one element.
constexpr std::int64_t bytes_of(Element element) {
  return element == Element::kFp32 ? kFloatBytes : kFloatBytes / 2;
}

inline constexpr std::int64_t kPanel = 64;  ///< columns of a panel
inline constexpr std::int64_t kStrip = 16;  ///< those of a strip, four of which are a panel on AVX2
inline constexpr std::int64_t kFp32RowUnit = 16;  ///< rows of a panel of fp32 come in so many

/// How products of a target read their operands.
struct Packing {
  bool in_panels = true;          ///< right operands; else row by row, as they are
  bool has_bf16_products = true;  ///< else bf16 is widened to fp32, in which its products are exact
  std::int64_t strip = kPanel;    ///< columns of a panel that lie side by side

  /// How values lie in operands of products.
  [[nodiscard]] constexpr Element stored(Element values) const {
    return has_bf16_products ? values : Element::kFp32;
  }

  friend bool operator==(const Packing&, const Packing&) = default;
};

/// That of a target: kernels::Target or spec::Target, which name the same instruction sets, lowest
/// first. This is the one place that decides it.
template <typename Target>
constexpr Packing packing_of(Target target) {
  return {.in_panels = target >= Target::kAvx2,
          .has_bf16_products = target >= Target::kAvx512Bf16,
          .strip = target == Target::kAvx2 ? kStrip : kPanel};
}

/// Rows of the packed form of so many: those added are zeros.
std::int64_t packed_rows(const Packing& packing, Element values, std::int64_t rows);

/// The packed form of [rows, cols].
std::int64_t packed_bytes(const Packing& packing,
                          Element values,
                          std::int64_t rows,
                          std::int64_t cols);

/// The layers of rows into which the packed form of so many rows is cut.
std::int64_t packed_layers(const Packing& packing, std::int64_t rows);
Range packed_layer(const Packing& packing, std::int64_t rows, std::int64_t index);

/// Columns of a deep product whose sums over layers are made at once.
inline constexpr std::int64_t kDeepCols = 512;

/// One product and its operands.
struct Product {
  std::int64_t rows = 0;            ///< m
  std::int64_t depth = 0;           ///< k
  std::int64_t cols = 0;            ///< n
  Element values = Element::kFp32;  ///< of a and b
  Element out = Element::kFp32;
  bool is_left_compact = true;
  bool is_out_compact = true;
};

/// Memory of a thread for its products, one after the other.
struct ProductScratch {
  std::int64_t left = 0;     ///< a compact copy of a, in the type that is multiplied
  std::int64_t out = 0;      ///< the result before it is rounded or goes to a matrix with gaps
  std::int64_t grouped = 0;  ///< of a deep product: a, layer by layer
  std::int64_t sums = 0;     ///< of a deep product: of columns, over its layers

  /// Enough for both.
  void include(const ProductScratch& other);
};

/// Rows of b that a product of depth k reads, and columns of the copy of a.
std::int64_t product_depth(const Packing& packing, Element values, std::int64_t depth);

/// Copies that one product without layers needs.
ProductScratch copies_of(const Packing& packing, const Product& product);

/// All that a product needs, of any depth.
ProductScratch scratch_of(const Packing& packing, const Product& product);

/// Beside that, of a product that is added to `rows` compact rows of fp32, where it cannot be added
/// as it is stored.
constexpr std::int64_t term_bytes(std::int64_t rows, std::int64_t cols) {
  return rows * cols * kFloatBytes;
}

/// The widths of a linear layer's weights.
struct LayerShape {
  std::int64_t in = 0;
  std::int64_t out = 0;
};

/// The weights of layers, each packed for both directions.
std::int64_t prepared_bytes(const Packing& packing,
                            Element values,
                            std::span<const LayerShape> layers);

/// Samples of a product of a weight's gradient at most. Rows of dyᵀ are then 512 bytes long in
/// bf16: with 4096, as for 2048 samples at once, all rows of a tile meet in one set of the first
/// cache, at a third of the speed.
inline constexpr std::int64_t kMaxPiece = 256;

/// What a slice keeps for the gradient of a layer's weights: of each piece of its samples dy
/// transposed, and x packed.
struct GradientOperands {
  std::int64_t pieces = 0;
  std::int64_t left = 0;   ///< dy of a piece
  std::int64_t right = 0;  ///< x of a piece

  [[nodiscard]] std::int64_t lefts() const { return pieces * left; }

  [[nodiscard]] std::int64_t bytes() const { return pieces * (left + right); }
};

/// Of so many samples.
GradientOperands gradient_operands(const Packing& packing,
                                   Element values,
                                   std::int64_t samples,
                                   const LayerShape& layer);

/// Rows and columns of a layer's weights whose gradient is summed at once.
struct GradientTile {
  Range rows;
  Range cols;

  /// Floats of one partial sum of it.
  [[nodiscard]] std::int64_t floats() const { return round_up(rows.size() * cols.size(), 16); }

  /// Of those that wait on the way up a tree, `depth` at once.
  [[nodiscard]] std::int64_t sum_floats(std::int64_t depth) const { return depth * floats(); }
};

/// What adding the products of a tile's pieces needs, of a slice of so many samples. Where right
/// operands are not in panels, products of some of their columns are not added as they are stored.
ProductScratch scratch_of_tile(const Packing& packing,
                               Element values,
                               std::int64_t samples,
                               const LayerShape& layer,
                               const GradientTile& tile);

/// Tiles that cover the weights [out, in]: 512 KiB at most, so that with the second partial sum and
/// one piece's operands a tile fits 2 MiB of second cache. A tile has at most 256 inputs where the
/// layer has fewer than 256 outputs, so that threads share such a layer.
std::vector<GradientTile> gradient_tiles(const LayerShape& layer);

/// Pairs of F fields: F (F - 1) / 2.
constexpr std::int64_t num_pairs(std::int64_t fields) {
  return fields * (fields - 1) / 2;
}

/// Floats that dots of F fields of D values need: forward the vectors of up to 16 samples, one
/// register more for each field, and the sums of 3 or 4 fields with all before them, in whole
/// blocks of 16; backward a sample's gradients as a square matrix, and its vectors.
constexpr std::int64_t dot_interaction_scratch(std::int64_t fields, std::int64_t dim) {
  const std::int64_t padded = std::max(round_up(fields, 3), round_up(fields, 4));
  const std::int64_t forward = padded * (round_up(dim, 4) + 1) * 16 + round_up(4 * padded, 16) * 16;
  const std::int64_t rows = round_up(fields, 16);
  return std::max(forward, rows * (round_up(dim, 16) + rows));
}

/// Sums of `count` biases on the way up a tree of which `depth` sums wait at once.
constexpr std::int64_t bias_sum_floats(std::int64_t count, std::int64_t depth) {
  return count * depth;
}

/// Elements of a gradient of all parameters that are looked at as one block: 16 KiB, enough to
/// outweigh the hand-off to a thread, and fixed, since the order of addition of the norm follows
/// it.
inline constexpr std::int64_t kDenseBlock = 4096;

/// Results of looking at a gradient of so many values: one of all, those of the blocks, and the
/// slots of their tree.
std::int64_t scan_results(std::int64_t count);

inline constexpr std::int64_t kScanBytes = 16;  ///< of a result: kernels::GradientScan

/// Rows of a product over n elements of sequences: n rounded up to a multiple of an eighth of the
/// power of two below it, at least of 16. The number of elements changes with every batch; so there
/// are few shapes, at most an eighth of the work is wasted, and zeros add nothing.
std::int64_t padded_elements(std::int64_t n);

}  // namespace weft::layout
