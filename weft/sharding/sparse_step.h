/// SparseStep: everything that one batch has in flight in the tables, from the exchange of its
/// counts to the update of its rows. ShardedEmbeddings::make_step() makes one, its stages take it;
/// a schedule owns as many as it has batches in flight.
///
/// Memory      buffers grow to the longest batch that a step has seen, and are reused.
/// Threads     stages as weft/pipeline/stage.h declares.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "weft/base/at.h"
#include "weft/embedding/row_gradients.h"
#include "weft/embedding/table_shard.h"
#include "weft/sharding/fetch_turns.h"
#include "weft/sharding/input_step.h"
#include "weft/sharding/output_dist.h"
#include "weft/sharding/output_step.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/shared_jobs.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"

namespace weft::sharding {

/// The gradients of one shard, and the slots of its rows.
struct ShardStep {
  ShardStep(Device& device, embedding::TableShard& shard)
      : gradients(device, shard), updated_ends(device) {}

  embedding::RowGradients gradients;
  std::vector<kernels::Bags> fetched;  ///< by slot, then source; where the shard has a Residency
  std::unique_ptr<storage::ResidentRows> resident;  ///< likewise, from the first fetch on
  /// The rows of all groups' batches, where groups exchange gradients: from the first update on.
  std::unique_ptr<storage::ResidentRows> updated;
  Buffer updated_ends;  ///< of the one bag that they are
};

/// What one batch has in flight in the tables of one ReplicaSet.
struct ReplicaSetStep {
  ReplicaSetStep(const Routing& routing,
                 std::int64_t rank,
                 std::int64_t control_bytes,
                 std::unique_ptr<OutputStep> output_step)
      : input(routing, rank, control_bytes),
        output_memory(std::move(output_step)),
        output(*output_memory),
        lookups(at(routing.micro_batches.count())),
        lookup_places(at(routing.micro_batches.count())) {}

  InputStep input;
  std::unique_ptr<OutputStep> output_memory;
  OutputStep& output;
  std::vector<std::unique_ptr<ShardStep>> shards;         ///< as ReplicaSet has them
  std::vector<embedding::RowGradients*> whole;            ///< updated without help from other ranks
  std::vector<embedding::RowGradients*> cut;              ///< whose updates look at other columns
  std::vector<embedding::RowGradients*> copied;           ///< of data_parallel tables and hot rows
  std::vector<embedding::RowGradients*> sharded;          ///< of which other groups hold replicas
  std::vector<std::vector<kernels::BagLookup>> lookups;   ///< [micro-batches]
  std::vector<SharedPlaces> lookup_places;                ///< likewise
  std::vector<embedding::GradientBlock> gradient_blocks;  ///< by shard, slot, then source rank
  SharedPlaces gradient_places;
  std::vector<std::size_t> gradient_block_ends;  ///< [shards] in these
  std::vector<std::pair<embedding::RowGradients*, std::span<const embedding::GradientBlock>>>
      coalesces;
  FetchTurns turns;  ///< of fetch(), and then of update()
};

/// Values of a table's vectors and gradients that codecs clipped or found non-finite.
struct TableClips {
  kernels::CodecClips forward, backward;

  friend bool operator==(const TableClips&, const TableClips&) = default;
};

class SparseStep {
 public:
  /// The steps of all sets, in their order. ShardedEmbeddings::make_step() calls it.
  explicit SparseStep(std::vector<std::unique_ptr<ReplicaSetStep>> sets) : sets_(std::move(sets)) {}

  /// Vectors of this rank's samples, of all features. Valid from output_dist() to the next
  /// exchange_ids() of this step.
  [[nodiscard]] FeatureMatrices& outputs() { return sets_.front()->output.matrices.outputs(); }

  /// Gradients of the same shapes, which the caller fills between output_dist() and grad_dist().
  /// With GradientUse::kChange grad_dist() divides those of means in place. update() reads them:
  /// they stay as they are until it is done.
  [[nodiscard]] FeatureMatrices& gradients() { return sets_.front()->output.matrices.gradients(); }

  /// Lets the vectors of the batch in hand be written to the caller's memory, on the device. Call
  /// between exchange_ids() and lookup(), with MatrixOwner::kCaller for every batch. Throws
  /// Error(kUsage) for matrices of other shapes than the batch's.
  void use_outputs(const FeatureMatrices& outputs) {
    for (const auto& set : sets_) {
      set->output.matrices.use_outputs(outputs);
    }
  }

  /// Lets its gradients be read from there, and changed only as the step's options allow. Call
  /// between exchange_ids() and coalesce(); the numbers are read from grad_dist() to update().
  void use_gradients(const FeatureMatrices& gradients) {
    for (const auto& set : sets_) {
      set->output.matrices.use_gradients(gradients);
    }
  }

  /// The control block of place `rank` of this rank's group of the first set, which has
  /// Plan::most_ranks() ranks. Valid from exchange_counts() to the next one of this step.
  [[nodiscard]] std::span<const std::byte> control(std::int64_t rank) const {
    return sets_.front()->input.control(rank);
  }

  /// Values of a table's vectors and gradients that this rank's codecs have clipped or found
  /// non-finite in all batches that this step has had. REQUIRES: `table` is an index in
  /// Config::tables.
  [[nodiscard]] TableClips codec_clips(std::int64_t table) const {
    TableClips clips;
    for (const auto& set : sets_) {
      clips.forward += set->output.forward_wire.clips(table);
      clips.backward += set->output.backward_wire.clips(table);
    }
    return clips;
  }

  /// The same of the batch in hand: since its exchange_counts().
  [[nodiscard]] TableClips batch_clips(std::int64_t table) const {
    TableClips clips;
    for (const auto& set : sets_) {
      clips.forward += set->output.forward_wire.batch_clips(table);
      clips.backward += set->output.backward_wire.batch_clips(table);
    }
    return clips;
  }

  /// Forgets what codecs have clipped of the gradients of the batch in hand, which no update uses.
  void forget_gradient_clips() {
    for (const auto& set : sets_) {
      set->output.backward_wire.forget_batch();
    }
  }

  /// Fills the vectors' and gradients' buffers with zeros where they have grown (OutputDist).
  void clear_grown(Context& ctx) {
    for (const auto& set : sets_) {
      OutputDist::clear_grown(ctx, set->output);
    }
  }

  /// The step of the set with this index.
  [[nodiscard]] ReplicaSetStep& set(std::size_t index) { return *sets_[index]; }

 private:
  std::vector<std::unique_ptr<ReplicaSetStep>> sets_;
};

}  // namespace weft::sharding
