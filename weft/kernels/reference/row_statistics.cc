#include "weft/kernels/row_statistics.h"

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

}  // namespace weft::kernels
