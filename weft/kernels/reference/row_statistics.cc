#include "weft/kernels/row_statistics.h"

#include <vector>

#include "weft/base/parts.h"

namespace weft::kernels {
namespace {

float sum_node(const float* blocks, std::int64_t stride, Range node) {
  if (node.size() == 1) {
    return blocks[node.begin * stride];
  }
  const std::int64_t middle = tree_split(node.begin, node.end);
  const float left = sum_node(blocks, stride, {node.begin, middle});
  return left + sum_node(blocks, stride, {middle, node.end});
}

}  // namespace

float block_tree_sum(const float* blocks, std::int64_t count, std::int64_t stride) {
  return sum_node(blocks, stride, {0, count});
}

void reference::sum_row_blocks(Context& /*ctx*/, std::span<const RowBlocks> jobs) {
  for (const RowBlocks& job : jobs) {
    for (std::int64_t u = 0; u < job.rows; ++u) {
      std::vector<float> row;
      for (std::size_t k = 0; k < job.counts.size(); ++k) {
        const float* const first = job.blocks[k] + u * job.counts[k];
        row.insert(row.end(), first, first + job.counts[k]);
      }
      job.out[u] = block_tree_sum(row.data(), static_cast<std::int64_t>(row.size())) / job.divisor;
    }
  }
}

}  // namespace weft::kernels
