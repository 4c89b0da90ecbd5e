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
/// Assembly   Tables whose rows are not cut: copies. Others, pooled: for each cut of columns the
///            partial sums of a bag go up the tree over the numbers of the cuts of rows
///            (base/parts.h), absent ones skipped, so a bag that lies in one of them keeps its
///            bits, and cuts of columns change none. The hot rows are the last of these cuts. Mean:
///            divided by the bag's length here, after the sum; its gradient is divided in the
///            gradient matrix, before it leaves. Empty bags give zeros.
/// Fetched    tables that are pooled at the sample (Routing): one vector per unique row, from
///            wherever it is held, into one matrix of the table; bags are added from there
///            (fetched_rows.h). Back go partial sums of row gradients.
/// Codecs     where one is configured, every vector of a slot, and every gradient of one, is
/// encoded
///            where it is made and decoded where it is needed (vector_wire.h), also what a rank
///            serves for itself. Partial sums of bags and of row gradients are encoded as they are,
///            and added in fp32. Means are divided after decoding, their gradients before encoding.
///            data_parallel tables are not encoded. fp32 does nothing of this.
/// Bytes      per rank, forward: 4·D per vector asked of others, or kernels::encoded_bytes();
///            backward the same.
/// Threads    tasks of runs of bags on the context's pool. Nothing is allocated once the longest
///            batch has been seen.
/// Source     ZionEX (arXiv 2104.05158) section 4; row_wise without the dense reduce-scatter as in
///            the sparse all-to-all of CPU submissions to MLPerf DLRM-DCNv2.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/comm/communicator.h"
#include "weft/sharding/fetched_rows.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/task_list.h"
#include "weft/sharding/vector_draws.h"
#include "weft/sharding/vector_wire.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/view.h"

namespace weft::sharding {

/// Vectors or gradients of all features of this rank's samples, on the device.
struct FeatureMatrices {
  Matrix<float> pooled;                  ///< [B, pooled_columns]; feature f at pooled_column
  std::vector<Matrix<float>> sequences;  ///< [F]: [ids, D] for sequences, empty otherwise

  /// The columns of feature `f`, or its sequence.
  [[nodiscard]] Matrix<float> of(const FeatureRoute& feature, std::int64_t f) const {
    return feature.pooling == spec::Pooling::kNone
               ? sequences[static_cast<std::size_t>(f)]
               : pooled.slice_cols(feature.pooled_column, feature.pooled_column + feature.dim);
  }
};

/// Moves vectors to the samples and gradients back. A step calls prepare(), forward() and, in a
/// training, backward(); the last two are collective over the constructor's `comm`.
class OutputDist {
 public:
  /// `matrices`: whose outputs() and gradients() these are too, so that several sets of tables
  /// write and read one; null: its own. It outlives this one and is prepared before it.
  OutputDist(const spec::Config& config,
             const Routing& routing,
             comm::Communicator& comm,
             Device& device,
             const OutputDist* matrices = nullptr);

  /// Sizes every buffer for the batch of `input`. Call once per step, after exchange_ids.
  void prepare(const InputDist& input);

  /// Fills all buffers with zeros where prepare() has made one larger, for steps that leave stages
  /// out: what no stage wrote is then the same on every run, and a number. Call after prepare().
  void clear_grown(Context& ctx);

  /// Where the server writes the vectors of the block from `source` of a slot that it serves, or of
  /// a replicated slot (its own source): one per bag of block.lookup, or per id of a sequence.
  [[nodiscard]] VectorPlace output(const SlotAddress& address, std::int64_t source) const;

  /// Where it finds the gradients after backward(): one per bag of block.gradient, or per id.
  [[nodiscard]] VectorPlace gradient(const SlotAddress& address, std::int64_t source) const;

  /// Sends vectors to their samples and assembles outputs().
  void forward(Context& ctx, const InputDist& input);

  /// Sorts what gradients of fetched tables will be summed from. May be left out: backward() then
  /// does it.
  void coalesce(Context& ctx, const InputDist& input) { fetched_.coalesce(ctx, input, gradients_); }

  /// Divides gradients() of means in place, and sends gradients to the servers.
  void backward(Context& ctx, const InputDist& input);

  /// Values of a table's vectors, and of their gradients, that this rank's codecs have clipped or
  /// found non-finite since the start of the run.
  [[nodiscard]] kernels::CodecClips forward_clips(std::int64_t table) const {
    return forward_wire_.clips(table);
  }

  [[nodiscard]] kernels::CodecClips backward_clips(std::int64_t table) const {
    return backward_wire_.clips(table);
  }

  [[nodiscard]] FeatureMatrices& outputs() { return outputs_; }

  [[nodiscard]] FeatureMatrices& gradients() { return gradients_; }

 private:
  /// What is to be done to the columns of a pooled slot, or of a split feature, once its vectors
  /// are there.
  struct Job {
    enum class Kind : std::uint8_t { kCopy, kDivide, kAdd };
    Kind kind = Kind::kCopy;
    SlotAddress address;  ///< of kAdd: of the first cut of rows
  };

  /// Where a block that this rank serves lies in served_, in floats.
  struct ServedPlace {
    std::int64_t vectors = 0;
    std::int64_t gradients = 0;
  };

  /// Some columns of the vectors of one cut of rows of a split feature.
  struct ShardVectors {
    const float* vectors = nullptr;
    std::int64_t stride = 0;             ///< elements
    const std::int32_t* bags = nullptr;  ///< of each vector, ascending
    std::int64_t next = 0;
    std::int64_t end = 0;
  };

  static constexpr std::int64_t kMostBags = 128;  ///< of a task

  /// What a task needs to add up split bags.
  struct Scratch {
    std::span<ShardVectors> shards;
    std::span<const float*> terms;  ///< [kMostBags][shards], where a bag has several
    float* sums = nullptr;          ///< [tree slots][dim]
  };

  [[nodiscard]] bool is_mean(std::int64_t f) const {
    return feature(f).pooling == spec::Pooling::kMean;
  }

  [[nodiscard]] const FeatureRoute& feature(std::int64_t f) const {
    return routing_.features[static_cast<std::size_t>(f)];
  }

  void list_jobs(const FeatureRoute& route);
  void list_own_gradients();
  void take_matrices(const InputDist& input);
  void size_matrices(const InputDist& input);
  void place_served(const InputDist& input);
  void place_asked(const InputDist& input);
  void list_jobs();
  void size_scratch();
  [[nodiscard]] Scratch scratch(std::int64_t task, std::int64_t shards);
  [[nodiscard]] Range task_bags(std::int64_t task) const;
  [[nodiscard]] VectorPlace asked_gradients(const Slot& slot) const;
  [[nodiscard]] VectorPlace in_matrix(const Slot& slot, const FeatureMatrices& matrices) const;
  [[nodiscard]] VectorPlace served(const SlotAddress& address, std::int64_t source) const;
  [[nodiscard]] std::size_t served_index(const SlotAddress& address, std::int64_t source) const;
  [[nodiscard]] const float* asked(const SlotAddress& address) const;
  [[nodiscard]] ShardVectors shard_vectors(const SlotAddress& address,
                                           Range cols,
                                           std::int64_t first_bag,
                                           const InputDist& input) const;
  void exchange_vectors(Context& ctx, const InputDist& input);
  void exchange_encoded_vectors(Context& ctx, const InputDist& input);
  void add_served_vectors(const SlotAddress& address, std::int64_t source, const InputDist& input);
  void add_asked_vectors(const SlotAddress& address, const InputDist& input);
  [[nodiscard]] VectorPlace sequence_place(const Slot& slot) const;
  void assemble(Context& ctx, const InputDist& input);
  void assemble_bags(std::int64_t task, const InputDist& input);
  void clear_empty_bags(const SlotAddress& address, Range bags, const InputDist& input);
  void copy_bags(const SlotAddress& address, Range bags, const InputDist& input);
  void copy_sequence(const SlotAddress& address, std::int64_t task, const InputDist& input);
  void divide_bags(const Slot& slot, Range bags, const FeatureMatrices& m, const InputDist& input);
  void add_shards(const SlotAddress& first, std::int64_t task, const InputDist& input);
  static void find_terms(Scratch& scratch, Range bags, std::span<const float*> only);
  static void add_terms(std::span<const float* const> terms, float* sums, std::span<float> out);
  void pool_fetched(Context& ctx, const InputDist& input);
  void divide_means(Context& ctx,
                    std::span<const std::int64_t> means,
                    const FeatureMatrices& m,
                    const InputDist& input);
  [[nodiscard]] bool gradient_travels(const SlotAddress& address, std::int64_t source) const;
  void exchange_encoded_gradients(Context& ctx, const InputDist& input);
  void describe_gradient_lanes(const InputDist& input);
  void add_hot_gradients(const InputDist& input);
  [[nodiscard]] comm::Piece gradient_piece(const SlotAddress& address,
                                           const InputDist& input) const;

  const Routing& routing_;
  comm::Communicator& comm_;
  const OutputDist* matrices_;  // in whose memory the next two are; null: here
  std::int64_t rank_;
  FeatureMatrices outputs_, gradients_;
  FetchedRows fetched_;
  VectorWire forward_wire_, backward_wire_;
  WireDraws draws_;
  Buffer pooled_, pooled_gradients_;
  std::vector<Buffer> sequences_, sequence_gradients_;  // [F]
  Buffer served_;                                       // vectors of this rank's slots, by source
  Buffer asked_;                            // vectors of this rank's samples, where not lent;
                                            // decoded ones of split bags
  std::int64_t cleared_ = 0;                // capacity of all of these at the last clear_grown()
  std::vector<ServedPlace> served_places_;  // [W][own slots], then [replicated slots]
  std::vector<Range> served_run_;           // [W] floats; this rank's ends with hot rows
  std::vector<std::vector<std::int64_t>>
      asked_begin_;                          // [W + 1][slots] floats, of the server's run
  std::vector<Range> asked_run_;             // [W] floats
  std::vector<const float*> asked_from_;     // [W] where a server's run has come
  std::vector<Job> jobs_;                    // of every task of bags, static
  std::vector<std::int64_t> means_;          // features
  std::vector<std::int64_t> fetched_means_;  // those of fetched tables
  std::vector<SlotAddress> sequences_to_copy_;
  std::vector<Slot> own_gradients_;  // read in the gradient matrices: columns of features, once
  std::int64_t most_shards_ = 0;     // cuts of rows of a split pooled feature
  std::int64_t most_sums_ = 0;       // floats of its Scratch::sums
  std::int64_t bags_per_task_ = 1;
  std::int64_t bag_tasks_ = 0;
  TaskList tasks_;                                  // one of bags, then one per sequence
  std::vector<ShardVectors> shard_vectors_;         // [tasks of bags][most shards]
  std::vector<const float*> terms_;                 // [tasks of bags][kMostBags][most shards]
  Buffer sums_;                                     // [tasks of bags][most sums]
  std::vector<comm::Piece> send_runs_, recv_runs_;  // [W], forward
  std::vector<std::vector<comm::Piece>> send_pieces_, recv_pieces_;  // [W], backward
  std::vector<comm::Lane> send_, recv_;
};

}  // namespace weft::sharding
