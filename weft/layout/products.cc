#include "weft/layout/products.h"

#include <bit>

namespace weft::layout {
namespace {

/// Rows of a packed matrix come in so many of this type.
std::int64_t row_unit(Element stored) {
  return stored == Element::kFp32 ? kFp32RowUnit : 32;
}

// Rows that are not cut, and rows of a layer of more: 256 rows of so many bf16 values and a panel
// of 512 columns fit the second cache together with their fp32 sums.
constexpr std::int64_t kDeep = 1024;
constexpr std::int64_t kLayer = 640;

std::int64_t layer_depth(std::int64_t rows) {
  const std::int64_t layers = (rows + kLayer - 1) / kLayer;
  return round_up((rows + layers - 1) / layers, 64);
}

/// Pieces of about equal size, none above `most`, but for their unit.
std::vector<Range> cut(std::int64_t count, std::int64_t most, std::int64_t unit) {
  const std::int64_t pieces = (count + most - 1) / most;
  const std::int64_t size =
      round_up((count + pieces - 1) / std::max<std::int64_t>(pieces, 1), unit);
  std::vector<Range> ranges;
  for (std::int64_t begin = 0; begin < count; begin += size) {
    ranges.push_back({begin, std::min(count, begin + size)});
  }
  return ranges;
}

}  // namespace

std::int64_t packed_rows(const Packing& packing, Element values, std::int64_t rows) {
  return packing.in_panels ? round_up(rows, row_unit(packing.stored(values))) : rows;
}

std::int64_t packed_bytes(const Packing& packing,
                          Element values,
                          std::int64_t rows,
                          std::int64_t cols) {
  return packed_rows(packing, values, rows) * round_up(cols, kPanel) *
         bytes_of(packing.stored(values));
}

std::int64_t packed_layers(const Packing& packing, std::int64_t rows) {
  if (!packing.in_panels || rows <= kDeep) {
    return 1;
  }
  const std::int64_t depth = layer_depth(rows);
  return (rows + depth - 1) / depth;
}

Range packed_layer(const Packing& packing, std::int64_t rows, std::int64_t index) {
  if (packed_layers(packing, rows) == 1) {
    return {0, rows};
  }
  const std::int64_t depth = layer_depth(rows);
  return {index * depth, std::min(rows, (index + 1) * depth)};
}

void ProductScratch::include(const ProductScratch& other) {
  left = std::max(left, other.left);
  out = std::max(out, other.out);
  grouped = std::max(grouped, other.grouped);
  sums = std::max(sums, other.sums);
}

// Over whole blocks of k: the packed operand has zeros there. oneDNN would copy the left operand
// itself, slowly, and not use AMX for a short one; in fp32 only very short ones gain. Products of
// strips are Weft's own and take any depth.
std::int64_t product_depth(const Packing& packing, Element values, std::int64_t depth) {
  const bool is_short = depth < row_unit(Element::kFp32) && packing.strip == kPanel;
  const bool is_padded =
      packing.in_panels && (packing.stored(values) == Element::kBf16 || is_short);
  return is_padded ? packed_rows(packing, values, depth) : depth;
}

ProductScratch copies_of(const Packing& packing, const Product& product) {
  ProductScratch scratch;
  const Element stored = packing.stored(product.values);
  const std::int64_t depth = product_depth(packing, product.values, product.depth);
  if (!product.is_left_compact || stored != product.values || depth != product.depth) {
    scratch.left = product.rows * depth * bytes_of(stored);
  }
  const Element made = stored == product.values ? product.out : Element::kFp32;
  if (!product.is_out_compact || made != product.out) {
    scratch.out = product.rows * product.cols * bytes_of(made);
  }
  return scratch;
}

ProductScratch scratch_of(const Packing& packing, const Product& product) {
  const std::int64_t layers = packed_layers(packing, product.depth);
  if (layers == 1) {
    return copies_of(packing, product);
  }
  const Element stored = packing.stored(product.values);
  const std::int64_t cols = std::min(product.cols, kDeepCols);
  ProductScratch scratch{.grouped = product.rows * product.depth * bytes_of(stored),
                         .sums = term_bytes(product.rows, cols)};
  for (std::int64_t l = 0; l < layers; ++l) {
    scratch.include(copies_of(packing, {.rows = product.rows,
                                        .depth = packed_layer(packing, product.depth, l).size(),
                                        .cols = cols,
                                        .values = stored}));
  }
  return scratch;
}

std::int64_t prepared_bytes(const Packing& packing,
                            Element values,
                            std::span<const LayerShape> layers) {
  std::int64_t bytes = 0;
  for (const LayerShape& layer : layers) {
    bytes += packed_bytes(packing, values, layer.in, layer.out) +
             packed_bytes(packing, values, layer.out, layer.in);
  }
  return bytes;
}

GradientOperands gradient_operands(const Packing& packing,
                                   Element values,
                                   std::int64_t samples,
                                   const LayerShape& layer) {
  const std::int64_t pieces = (samples + kMaxPiece - 1) / kMaxPiece;
  if (pieces == 0) {
    return {};
  }
  const std::int64_t longest = (samples + pieces - 1) / pieces;
  return {.pieces = pieces,
          .left = round_up(layer.out * packed_rows(packing, values, longest) * bytes_of(values),
                           kCacheLine),
          .right = packed_bytes(packing, values, longest, layer.in)};
}

ProductScratch scratch_of_tile(const Packing& packing,
                               Element values,
                               std::int64_t samples,
                               const LayerShape& layer,
                               const GradientTile& tile) {
  const std::int64_t pieces = (samples + kMaxPiece - 1) / kMaxPiece;
  if (pieces == 0) {
    return {};
  }
  const std::int64_t longest = (samples + pieces - 1) / pieces;
  ProductScratch scratch = copies_of(packing, {.rows = tile.rows.size(),
                                               .depth = packed_rows(packing, values, longest),
                                               .cols = tile.cols.size(),
                                               .values = values});
  if (!packing.in_panels && tile.cols.size() < layer.in) {
    scratch.out = std::max(scratch.out, term_bytes(tile.rows.size(), tile.cols.size()));
  }
  return scratch;
}

std::vector<GradientTile> gradient_tiles(const LayerShape& layer) {
  constexpr std::int64_t kTileRows = 256;
  // A layer of few outputs would be one tile of one thread.
  const std::int64_t most_cols = layer.out < kTileRows ? 256 : 512;
  std::vector<GradientTile> tiles;
  for (const Range& cols : cut(layer.in, most_cols, kPanel)) {
    for (const Range& rows : cut(layer.out, kTileRows, 16)) {
      tiles.push_back({rows, cols});
    }
  }
  return tiles;
}

std::int64_t scan_results(std::int64_t count) {
  const std::int64_t blocks = (count + kDenseBlock - 1) / kDenseBlock;
  return 1 + blocks + tree_slots(std::max<std::int64_t>(1, blocks));
}

std::int64_t padded_elements(std::int64_t n) {
  const auto below = static_cast<std::int64_t>(
      std::bit_floor(static_cast<std::uint64_t>(std::max<std::int64_t>(n, 1))));
  return round_up(n, std::max<std::int64_t>(16, below / 8));
}

}  // namespace weft::layout
