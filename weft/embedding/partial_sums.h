/// Partial sums of row gradients: what a rank that saw some parts of a batch sends to whoever adds
/// up the whole (docs/numerics.md, "Row gradients").
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/kernels/row_gradients.h"
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

  /// The partial sums of one table.
  struct Work {
    PartialSums* sums = nullptr;
    const kernels::RowRuns* runs = nullptr;  ///< the coalesced entries
    std::int64_t cols = 0;                   ///< of their gradient vectors
  };

  /// One sum per (row, node) of the coalesced entries of each table, whose parts lie in
  /// `own_parts`. Tables differ. Cost: one read of every entry's vector, one write per sum.
  static void sum(Context& ctx, std::span<const Work> all, Range own_parts);

  /// Valid until the next sum().
  [[nodiscard]] PartialRows rows() const;

  /// [count, cols], the same memory as rows().vectors.
  [[nodiscard]] float* vectors() const { return vectors_.as<float>(); }

 private:
  void find_nodes(Context& ctx, Range own_parts);
  [[nodiscard]] kernels::PartNodes nodes() const;
  [[nodiscard]] kernels::PartialCut cut(const kernels::RowRuns& runs);
  [[nodiscard]] kernels::PartialSum add(const Work& work);

  std::int64_t parts_;
  Buffer rows_;      ///< [count]
  Buffer nodes_;     ///< [count] first parts
  Buffer segments_;  ///< [count + 1] first segment of each partial sum
  Buffer vectors_;   ///< [count, cols]
  std::int64_t count_ = 0;
  Range run_;                              ///< the parts that subtrees_ cover
  Buffer subtrees_;                        ///< maximal whole ones
  Buffer node_of_part_;                    ///< [parts]
  std::vector<kernels::PartialCut> cuts_;  ///< of a call, in the first of its sums
  std::vector<kernels::PartialSum> adds_;  ///< likewise
};

}  // namespace weft::embedding
