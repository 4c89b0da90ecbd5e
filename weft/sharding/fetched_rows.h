/// Private to sharding/: tables that are pooled at the sample, as the rank of the sample sees them.
/// The rows that its batch asks for have come once each; bags are added from them in the order of
/// the bag, as one rank that holds the table adds them. On the way back the row gradients of the
/// rank's samples are summed per (row, node), as replicas do it (embedding/partial_sums.h), and
/// whoever holds the row goes on up the tree. So no bit depends on where rows are cut.
///
/// Notation   U unique rows of the batch in a table, D columns of the whole table.
/// Memory     4·U·D for the vectors and 4·D per partial sum, reused from step to step.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/base/parts.h"
#include "weft/embedding/partial_sums.h"
#include "weft/kernels/coalesce.h"
#include "weft/kernels/embedding_bag.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/routing.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/view.h"

namespace weft::sharding {

struct FeatureMatrices;

class FetchedRows {
 public:
  FetchedRows(const Routing& routing, Device& device, std::int64_t rank);

  /// Sizes vectors() for the batch of `input`.
  void prepare(const InputDist& input);

  /// [U, D] by place, to be filled with what the shards send.
  [[nodiscard]] Matrix<float> vectors(std::int64_t fetch) const;

  /// Fills the columns of pooled features, means not yet divided, and the sequences.
  void pool(Context& ctx, const InputDist& input, const FeatureMatrices& outputs);

  /// Sorts the entries of the batch by (place, part); reads no gradient.
  void coalesce(Context& ctx, const InputDist& input, const FeatureMatrices& gradients);

  /// Makes partial_gradients(), after coalesce(), or with it where that was left out.
  void sum_gradients(Context& ctx, const InputDist& input, const FeatureMatrices& gradients);

  /// [sums, D] by place, then node.
  [[nodiscard]] Matrix<float> partial_gradients(std::int64_t fetch) const;

 private:
  struct Table {
    Buffer vectors;
    std::int64_t rows = 0;
    kernels::RunBuffers buffers;
    std::vector<kernels::GradientBlock> blocks;  ///< per feature
    kernels::RowRuns runs;
    embedding::PartialSums sums;
  };

  void add_blocks(std::size_t fetch, const InputDist& input, const FeatureMatrices& gradients);

  const Routing& routing_;
  Range own_parts_;
  std::vector<Table> tables_;  // [fetches]
  std::vector<kernels::BagLookup> lookups_;
  std::vector<kernels::CoalesceJob> coalesces_;
  std::vector<embedding::PartialSums::Work> sums_;
  bool coalesced_ = false;  // the batch in hand
};

}  // namespace weft::sharding
