/// Output dist and grad dist: vectors travel from the ranks that serve slots to the ranks whose
/// samples asked, and gradients travel back over the same layout.
///
/// Layout     between two ranks, slot after slot in the server's order; per slot one fp32 vector
///            of the shard's columns for each non-empty bag (pooled) or each id (sequence). Empty
///            bags send nothing.
/// Assembly   table_wise and column_wise: copies. row_wise pooled: the partial sums of a bag go up
///            the tree over the shards' numbers (base/parts.h), absent ones skipped, so a bag
///            that lies in one shard keeps its bits. Mean: divided by the bag's length here, after
///            the sum; its gradient is divided here, before it leaves. Empty bags give zeros.
/// Bytes      per rank, forward: 4·D per vector asked for; backward the same.
/// Source     ZionEX (arXiv 2104.05158) section 4; row_wise without the dense reduce-scatter as in
///            the sparse all-to-all of CPU submissions to MLPerf DLRM-DCNv2.
#pragma once

#include <cstdint>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/routing.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/view.h"

namespace weft::sharding {

/// Vectors or gradients of all features of this rank's samples, on the device.
struct FeatureMatrices {
  Matrix<float> pooled;                  ///< [B, pooled_columns]; feature f at pooled_column
  std::vector<Matrix<float>> sequences;  ///< [F]: [ids, D] for sequences, empty otherwise
};

class OutputDist {
 public:
  OutputDist(const Routing& routing, comm::Communicator& comm, Device& device);

  /// Sizes every buffer for the batch of `input`. Call once per step, after exchange_ids.
  void prepare(const InputDist& input);

  /// Where the server writes vectors of `block`, and finds gradients of it: [vectors, dim].
  [[nodiscard]] float* served(std::int64_t slot, std::int64_t source) const;
  [[nodiscard]] float* served_replicated(std::int64_t slot) const;

  /// Sends served vectors to their samples and assembles outputs().
  void forward(Context& ctx, const InputDist& input);

  /// Cuts gradients() and sends them to the servers; afterwards served() holds gradients.
  void backward(Context& ctx, const InputDist& input);

  [[nodiscard]] FeatureMatrices& outputs() { return outputs_; }

  [[nodiscard]] FeatureMatrices& gradients() { return gradients_; }

 private:
  /// The asking side's copy of a slot's vectors: where it begins.
  [[nodiscard]] float* asked(const SlotAddress& address) const;
  void assemble(std::int64_t f, const InputDist& input);
  void assemble_pooled(std::int64_t f, const InputDist& input);
  void assemble_split_bags(std::int64_t f, const InputDist& input);
  void divide_means(std::int64_t f, const InputDist& input);
  void scatter(std::int64_t f, const InputDist& input);
  void scatter_pooled(std::int64_t f, const InputDist& input);
  void move_sequence(std::int64_t f,
                     const InputDist& input,
                     const FeatureMatrices& matrices,
                     bool to_matrix);

  const Routing& routing_;
  comm::Communicator& comm_;
  FeatureMatrices outputs_, gradients_;
  Buffer pooled_, pooled_gradients_;
  std::vector<Buffer> sequences_, sequence_gradients_;  // [F]
  Buffer served_;                                       // vectors of this rank's slots, by source
  Buffer asked_;                                        // vectors of this rank's samples, by server
  std::vector<std::int64_t> served_begin_;              // [W][own slots], then replicated, floats
  std::vector<std::vector<std::int64_t>> asked_begin_;  // [W][slots], floats
  std::vector<std::int64_t> served_bytes_, asked_bytes_;  // [W]
};

}  // namespace weft::sharding
