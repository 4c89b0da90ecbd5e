/// SparseEngine: embedding tables with the exchanges between ranks that training them needs: a
/// control message with the counts of a batch, a report before its updates, syncs of replica
/// groups, and state with its hash. Engine puts a dense model on top; a trainer that computes
/// gradients itself can use the class alone.
///
/// Stages      of one SparseState, in this order on every rank; those in brackets are stages of
///             tables():
///               begin, exchange_counts, [exchange_ids], [fetch], [lookup], [output_dist],
///               the caller computes: gradients, report.non_finite, report.sums,
///               exchange_report; an evaluation ends here,
///               [coalesce], [grad_dist]; a step that is not applied ends here,
///               update, and sync_replicas where it is due.
///             weft/pipeline/stage.h declares which stages of which batches may overlap.
/// Communicators  ShardedEmbeddings opens its own; reports use "control", and the counts of replica
///             groups "control of groups".
/// Errors      what a stage throws. Overflows are in the report; the caller decides what they mean.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "weft/checkpoint/state_hash.h"
#include "weft/comm/communicator.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"
#include "weft/tensor/device.h"
#include "weft/train/batch_control.h"
#include "weft/train/step_report.h"

namespace weft::train {

/// What one batch has in flight in a SparseEngine; make_state() creates it.
struct SparseState {
  SparseState(std::int64_t parts, std::int64_t tasks, std::unique_ptr<sharding::SparseStep> step)
      : tables(std::move(step)), control(parts, tasks), report(parts, tasks) {}

  sharding::BatchView batch;
  std::unique_ptr<sharding::SparseStep> tables;
  BatchControl control;  ///< this rank's before exchange_counts(), then that of all ranks
  StepReport report;     ///< this rank's before exchange_report(), then that of all ranks
  bool apply = true;     ///< after exchange_report(): whether the step is applied
  std::vector<std::byte> control_bytes;  ///< what travels with the counts
};

class SparseEngine {
 public:
  /// Allocates and initialises this rank's shards. Collective. Config, plan, world and device
  /// outlive it; world's ranks are the positions of the plan's mesh.
  SparseEngine(const spec::Config& config,
               const spec::Plan& plan,
               comm::Communicator& world,
               Device& device);

  /// Returns memory for one batch in flight.
  [[nodiscard]] std::unique_ptr<SparseState> make_state();

  /// Begins a step of `batch`, which stays as it is until the step's last stage. `weights` are the
  /// sums of label weights of this rank's parts, [own parts][T]. A rank that was asked to stop sets
  /// state.control.stop afterwards.
  void begin(SparseState& state, const sharding::BatchView& batch, std::span<const double> weights);

  /// Cuts ids into slots and exchanges counts and control. Collective. Throws BatchError on all
  /// ranks where one rank's part of the batch is no batch.
  void exchange_counts(Context& ctx, SparseState& state);

  /// Takes part in that without a batch, because of `error`, and throws BatchError on all ranks.
  void refuse_batch(Context& ctx, SparseState& state, const Error& error);

  /// Replaces state.report by the merge of all ranks' reports and sets state.apply. Collective.
  /// REQUIRES: report.non_finite and report.sums are those of this rank.
  void exchange_report(Context& ctx, SparseState& state);

  /// Updates rows of an applied step, after grad_dist() of the tables.
  void update(Context& ctx, SparseState& state, const embedding::UpdateStep& step);

  /// Makes the replicas of all groups equal after the update of `step`. Called where it is due
  /// (mesh.sync_every); does nothing where they are equal. Collective.
  void sync_replicas(Context& ctx, std::int64_t step);

  /// Takes over what a dense model has counted after the report of `step`, for the next report:
  /// values that its codec has clipped or found non-finite, and updates that overflowed, both as
  /// totals since the start.
  void note_dense(std::int64_t step,
                  const kernels::CodecClips& clips,
                  const sharding::TableOverflow& overflow);

  /// Returns what has been counted since the last report. Collective.
  StepReport flush(Context& ctx);

  /// All other stages, and figures of the tables.
  [[nodiscard]] sharding::ShardedEmbeddings& tables() { return tables_; }

  [[nodiscard]] const sharding::ShardedEmbeddings& tables() const { return tables_; }

  /// Hash of `sources` over all ranks; also compares what several ranks hold, hot rows too.
  /// Collective.
  checkpoint::StateHash hash(Context& ctx, std::span<const StateSource* const> sources);

  /// What the residuals of syncs belong to, equal on all ranks; empty where there are none.
  [[nodiscard]] std::string sync_residual_layout() const;

  /// For reports and the caller's own collectives of the same stream.
  [[nodiscard]] comm::Communicator& control_comm() { return *control_comm_; }

  /// The rank of the world at a position of the mesh, for messages.
  [[nodiscard]] int world_rank(std::int64_t position) const {
    return control_comm_->world_rank(static_cast<int>(position));
  }

 private:
  /// What has been counted since the start, after reports. update(), sync_replicas() and
  /// note_dense() write members of their own, so none needs a lock; a report reads them after all
  /// three.
  struct Late {
    std::int64_t rows_step = 0, dense_step = 0, sync_step = 0;
    kernels::CodecClips backward, dense;
    sharding::SyncClips sync;
    sharding::TableOverflow rows_overflow, dense_overflow;
  };

  [[nodiscard]] std::int64_t num_tables() const {
    return static_cast<std::int64_t>(config_.tables.size());
  }

  void refuse_in_groups(Context& ctx, SparseState& state);
  void gather_groups(Context& ctx, BatchControl& control);
  void add_late(StepReport& report);
  void merge_reports(Context& ctx, StepReport& report);

  const spec::Config& config_;
  const spec::Plan& plan_;
  std::int64_t tasks_;
  std::int64_t rank_;
  BatchControl other_control_;  // of another rank, while merging
  std::int64_t control_bytes_;  // of a rank's block
  StepReport other_report_;     // likewise
  std::unique_ptr<comm::Communicator> control_comm_;
  /// The ranks that have this rank's place in every group of the first replica set; null where that
  /// set has one group.
  std::unique_ptr<comm::Communicator> groups_comm_;
  sharding::ShardedEmbeddings tables_;
  Late late_, reported_;
  std::int64_t late_table_ = -1;  // the first with codec counts of gradients after the last report
  std::vector<std::byte> group_block_, group_bytes_;  // of the own group; of all groups
  std::vector<std::byte> report_bytes_;               // as they travel
};

}  // namespace weft::train
