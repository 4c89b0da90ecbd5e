/// Partial sums of row gradients: what a rank that saw some parts of a batch sends to whoever adds
/// up the whole (docs/numerics.md, "Row gradients").
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/rows.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::embedding {

/// Partial sums of row gradients, sorted by (row, node). A node is a maximal whole subtree of the
/// sender's run of parts and is named by its first part, which is enough to place it in the tree.
/// Whoever adds them takes each as an entry of that part (kernels::GradientBlock, one bag per node
/// or per sum): nodes of different ranks are disjoint and whole, so the walk up the tree reaches
/// each of them just where its subtree would be.
struct PartialRows {
  std::int64_t count = 0;
  const std::int64_t* rows = nullptr;   ///< [count] as coalesced
  const std::int32_t* nodes = nullptr;  ///< [count] first part of the node
  const float* vectors = nullptr;       ///< [count, cols]
};

/// Keeps its buffers from step to step. One caller at a time, inside a stage.
class PartialSums {
 public:
  /// `parts`: P of the rule of parts.
  PartialSums(Device& device, std::int64_t parts);

  /// One sum per (row, node) of the coalesced entries, whose parts lie in `own_parts`; the gradient
  /// vectors have `cols` columns. Cost: one read of every entry's vector, one write per sum.
  void sum(Context& ctx, const kernels::RowRuns& runs, std::int64_t cols, Range own_parts);

  /// Valid until the next sum().
  [[nodiscard]] PartialRows rows() const;

  /// [count, cols], the same memory as rows().vectors.
  [[nodiscard]] float* vectors() const { return vectors_.as<float>(); }

 private:
  void find_nodes(Range own_parts);
  void cut(const kernels::RowRuns& runs);

  std::int64_t parts_;
  Buffer rows_;      ///< [count]
  Buffer nodes_;     ///< [count] first parts
  Buffer segments_;  ///< [count + 1] first segment of each partial sum
  Buffer vectors_;   ///< [count, cols]
  std::int64_t count_ = 0;
  Range run_;                               ///< the parts that subtrees_ cover
  std::vector<Range> subtrees_;             ///< maximal whole ones
  std::vector<std::int32_t> node_of_part_;  ///< [parts]
};

}  // namespace weft::embedding
