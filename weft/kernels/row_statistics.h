/// Statistics of a row: sums of squares over its columns, in one order whatever the shards.
///
/// A row is cut into blocks of 16 columns, the last padded with zeros. Inside a block the squares
/// s_0 … s_15 are added lane i + lane i+8, then i+4, i+2, i+1. Blocks are added up the tree of
/// weft/base/parts.h over their numbers. So a column shard cut at a multiple of 16 can send its
/// blocks' sums, and everybody gets the bits of the unsharded row..
#pragma once

#include <cstdint>

namespace weft::kernels {

/// ⌈cols / 16⌉.
inline std::int64_t statistic_blocks(std::int64_t cols) {
  return (cols + 15) / 16;
}

/// The tree over blocks[0], blocks[stride], … `count` >= 1 of them.
float block_tree_sum(const float* blocks, std::int64_t count, std::int64_t stride = 1);

/// The mean over the row's D columns: block_tree_sum / D.
inline float mean_square(const float* blocks, std::int64_t dim, std::int64_t stride = 1) {
  return block_tree_sum(blocks, statistic_blocks(dim), stride) / static_cast<float>(dim);
}

}  // namespace weft::kernels
