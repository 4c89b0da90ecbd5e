/// Statistics of a row: sums of squares over its columns, in one order whatever the shards.
///
/// A row is cut into blocks of 16 columns, the last padded with zeros. Inside a block the squares
/// s_0 … s_15 are added lane i + lane i+8, then i+4, i+2, i+1. Blocks are added up the tree of
/// weft/base/parts.h over their numbers. So a column shard cut at a multiple of 16 can send its
/// blocks' sums, and everybody gets the bits of the unsharded row.
#pragma once

#include <cstdint>
#include <span>

#include "weft/tensor/device.h"

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

/// The blocks of rows whose columns lie with several holders, in the order of their columns.
struct RowBlocks {
  std::int64_t rows = 0;
  std::span<const float* const> blocks;  ///< of each holder [rows, counts[holder]]
  std::span<const std::int64_t> counts;  ///< blocks of a row that each holder has
  float divisor = 1.0F;                  ///< D where the mean is wanted
  float* out = nullptr;                  ///< [rows]
};

/// Writes block_tree_sum() / divisor of every row of all jobs, over the blocks of all holders. The
/// lists of holders are the caller's, the values in memory of the context's device.
void sum_row_blocks(Context& ctx, std::span<const RowBlocks> jobs);

namespace cpu {
/// In one task pool.
void sum_row_blocks(Context& ctx, std::span<const RowBlocks> jobs);
}  // namespace cpu

namespace cuda {
/// Enqueued on the context's stream.
void sum_row_blocks(Context& ctx, std::span<const RowBlocks> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void sum_row_blocks(Context& ctx, std::span<const RowBlocks> jobs);
}  // namespace reference

}  // namespace weft::kernels
