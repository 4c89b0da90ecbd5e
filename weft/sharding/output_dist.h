/// Output dist and grad dist: vectors travel from the ranks that serve slots to the ranks whose
/// samples asked, and gradients travel back over the same layout.
///
/// In place   a slot that this rank serves for itself with whole bags (Routing::in_place): lookups
///            write straight into the output matrices, zeros for empty bags, and updates read the
///            gradient matrices. The own shard of a split pooled feature is read so too.
/// Layout     between two ranks, slot after slot in the server's order; per slot one fp32 vector
///            of the shard's columns for each non-empty bag (pooled) or each id (sequence). Empty
///            bags send nothing.
/// Copies     of a vector or gradient from another rank: over `local` one, from where it was
/// written
///            to where it is needed; over `mpi` one at each end of the message that has rows.
/// Assembly   table_wise and column_wise: copies. row_wise pooled: the partial sums of a bag go up
///            the tree over the shards' numbers (base/parts.h), absent ones skipped, so a bag
///            that lies in one shard keeps its bits. Mean: divided by the bag's length here, after
///            the sum; its gradient is divided in the gradient matrix, before it leaves. Empty bags
///            give zeros.
/// Bytes      per rank, forward: 4·D per vector asked of others; backward the same.
/// Threads    tasks of runs of vectors on the context's pool. Nothing is allocated once the longest
///            batch has been seen.
/// Source     ZionEX (arXiv 2104.05158) section 4; row_wise without the dense reduce-scatter as in
///            the sparse all-to-all of CPU submissions to MLPerf DLRM-DCNv2.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/comm/communicator.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/task_list.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/view.h"

namespace weft::sharding {

/// Vectors or gradients of all features of this rank's samples, on the device.
struct FeatureMatrices {
  Matrix<float> pooled;                  ///< [B, pooled_columns]; feature f at pooled_column
  std::vector<Matrix<float>> sequences;  ///< [F]: [ids, D] for sequences, empty otherwise
};

/// Vectors of one block: vector i is at data + i * stride (elements).
struct VectorPlace {
  float* data = nullptr;
  std::int64_t stride = 0;
};

class OutputDist {
 public:
  OutputDist(const Routing& routing, comm::Communicator& comm, Device& device);

  /// Sizes every buffer for the batch of `input`. Call once per step, after exchange_ids.
  void prepare(const InputDist& input);

  /// Where the server writes the vectors of the block from `source` of a slot that it serves, or of
  /// a replicated slot (its own source): one per bag of block.lookup, or per id of a sequence.
  [[nodiscard]] VectorPlace output(const SlotAddress& address, std::int64_t source) const;

  /// Where it finds the gradients after backward(): one per bag of block.gradient, or per id.
  [[nodiscard]] VectorPlace gradient(const SlotAddress& address, std::int64_t source) const;

  /// Sends vectors to their samples and assembles outputs().
  void forward(Context& ctx, const InputDist& input);

  /// Divides gradients() of means in place, and sends gradients to the servers.
  void backward(Context& ctx, const InputDist& input);

  [[nodiscard]] FeatureMatrices& outputs() { return outputs_; }

  [[nodiscard]] FeatureMatrices& gradients() { return gradients_; }

 private:
  /// What is to be done to vectors of one slot, or of a split feature, once they are there.
  struct Job {
    enum class Kind : std::uint8_t { kCopy, kDivide, kAdd };
    Kind kind = Kind::kCopy;
    SlotAddress address;     ///< of kAdd: the feature's first
    std::int64_t units = 0;  ///< vectors of kCopy, bags of the others
    std::int64_t units_per_task = 1;
    std::int64_t cursors_begin = 0;  ///< of kAdd, into cursors_: [tasks][shards]
    std::int64_t sums_begin = 0;     ///< of kAdd, into sums_: [tasks][tree slots][dim]
  };

  /// How far the assembly of a split feature is in the vectors of one shard.
  struct ShardCursor {
    const float* vectors = nullptr;
    const std::int32_t* rows = nullptr;
    std::int64_t next = 0;
    std::int64_t end = 0;
    const float* term = nullptr;  ///< of the bag in hand, null where the shard has none
  };

  [[nodiscard]] bool is_mean(std::int64_t f) const {
    return feature(f).pooling == spec::Pooling::kMean;
  }

  [[nodiscard]] const FeatureRoute& feature(std::int64_t f) const {
    return routing_.features[static_cast<std::size_t>(f)];
  }

  void size_matrices(const InputDist& input);
  void place_served(const InputDist& input);
  void place_asked(const InputDist& input);
  void list_jobs(const InputDist& input);
  [[nodiscard]] static std::int64_t job_tasks(const Job& job);
  void add_job(Job::Kind kind, const SlotAddress& address, std::int64_t units);
  [[nodiscard]] VectorPlace in_matrix(const Slot& slot, const FeatureMatrices& matrices) const;
  [[nodiscard]] VectorPlace served(const SlotAddress& address, std::int64_t source) const;
  [[nodiscard]] const float* asked(const SlotAddress& address) const;
  void run_job(const Job& job, std::int64_t task, const InputDist& input);
  void copy_vectors(const SlotAddress& address, Range vectors, const InputDist& input);
  void clear_rows(const Slot& slot, Range rows);
  void divide_bags(const Slot& slot, Range bags, const FeatureMatrices& m, const InputDist& input);
  void add_shards(const Job& job, std::int64_t task, Range bags, const InputDist& input);
  static void add_bag(std::span<ShardCursor> cursors,
                      std::int64_t bag,
                      float* sums,
                      std::span<float> out);
  void divide_gradients(Context& ctx, const InputDist& input);
  void describe_gradient_lanes(const InputDist& input);
  [[nodiscard]] comm::Piece gradient_piece(const SlotAddress& address,
                                           const InputDist& input) const;

  const Routing& routing_;
  comm::Communicator& comm_;
  std::int64_t rank_;
  FeatureMatrices outputs_, gradients_;
  Buffer pooled_, pooled_gradients_;
  std::vector<Buffer> sequences_, sequence_gradients_;  // [F]
  Buffer served_;                                       // vectors of this rank's slots, by source
  Buffer asked_;                            // vectors of this rank's samples, where not lent
  std::vector<std::int64_t> served_begin_;  // [W][own slots], floats; -1 in place
  std::vector<Range> served_run_;           // [W] floats
  std::vector<std::vector<std::int64_t>> asked_begin_;  // [W][slots] floats, of the server's run
  std::vector<Range> asked_run_;                        // [W] floats
  std::vector<const float*> asked_from_;                // [W] where a server's run has come
  std::vector<Job> jobs_;
  TaskList tasks_;         // of jobs
  TaskList divide_tasks_;  // of features
  std::vector<ShardCursor> cursors_;
  Buffer sums_;
  std::vector<comm::Piece> send_runs_, recv_runs_;                   // [W], forward
  std::vector<std::vector<comm::Piece>> send_pieces_, recv_pieces_;  // [W], backward
  std::vector<comm::Lane> send_, recv_;
};

}  // namespace weft::sharding
