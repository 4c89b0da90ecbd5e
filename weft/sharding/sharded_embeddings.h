/// ShardedEmbeddings: all tables of a job as one rank sees them, over all numbers of their replica
/// groups. The tables live here; what a batch has in flight is in a SparseStep, which every stage
/// takes as an argument, so that several batches may be under way.
///
/// Stages     one batch runs these, in this order on every rank:
///
///   exchange_counts   ids cut into slots; counts, header and control block exchanged   (1 a2a)
///   exchange_ids      ids travel to the ranks that serve them, onto the device         (1 a2a)
///   fetch             rows that the batch reads get slots, which they keep until update() or
///                     release(); nothing where all rows are in memory (weft/storage/residency.h)
///   lookup            rows are read, once per id: of this rank's samples into outputs(), of others
///                     into the exchange's buffer; once per micro-batch (Pipeline::cuts())
///   output_dist       vectors travel back and are assembled into outputs(), likewise   (1 a2a)
///   ...               the caller fills gradients()
///   coalesce          (row, part) sorted; needs ids only, so it may run ahead
///   grad_dist         gradients travel to the servers, likewise                        (1 a2a)
///   update            duplicates summed up the tree of parts, optimizer once per row
///                     (+ 1 exchange of row statistics, + 1 for max-norm, + 2 for data_parallel,
///                     each only where a table needs it; of several groups with sync gradients,
///                     row gradients are first summed over the groups, + 2)
///
///            An evaluation ends with output_dist. sync_replicas() averages the replicas of the
///            groups, every mesh.sync_every steps and at the end (replica_average.h).
/// Notation   M groups of the mesh, W ranks. A ReplicaSet has the tables of K groups, K a divisor
/// of
///            M; its groups are M/K neighbouring ones of the mesh each (weft/spec/mesh.h). Where
///            all tables have M groups there is one set.
/// Sets       each has a plan and communicators of its own, over W/K ranks: an exchange of ids, and
///            one of vectors each way, per set and step. Samples and parts are dealt by position,
///            so all sets see the same batch. c, the multiple of a group's gradients, and the
///            number of replicas that a sync averages are K.
///            Sets go in ascending K: the first is that of the largest groups. The caller's control
///            block travels with its counts, and data_parallel tables, which all ranks hold alike
///            whatever the groups, are with it.
/// Threads    weft/pipeline/stage.h declares which stages may run beside each other: those of other
///            batches that touch no row, and of one batch those of different micro-batches.
/// Cost       with n sets n times the messages of each exchange, and a pass over the features each.
/// Source     ZionEX (arXiv 2104.05158) sections 2 and 4; the groups' layout: arXiv 2508.03854.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/row_sums.h"
#include "weft/sharding/replica_set.h"
#include "weft/sharding/sparse_step.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

/// The settings that neither configuration nor plan has.
struct ShardedEmbeddingsOptions {
  std::int64_t control_bytes = 8;                ///< of the caller's block in the counts exchange
  std::optional<layout::RowSums> row_sums = {};  ///< in place of the rule's (layout::row_sums())
};

class ShardedEmbeddings {
 public:
  /// Allocates and initialises this rank's shards. `world`'s ranks are the positions of the plan's
  /// mesh. Collective. Keeps copies of config and plan; `device` outlives it.
  ShardedEmbeddings(const spec::Config& config,
                    const spec::Plan& plan,
                    comm::Communicator& world,
                    Device& device,
                    const ShardedEmbeddingsOptions& options = {});

  /// Returns memory for one batch in flight, which the tables outlive. `options` say whose memory
  /// the vectors and gradients are, and whether grad_dist changes gradients in place. No exchange.
  [[nodiscard]] std::unique_ptr<SparseStep> make_step(const SparseStepOptions& options = {});

  /// Begins a step: cuts the batch into slots and exchanges counts and `control`
  /// [options.control_bytes]. The batch stays as it is until the step's last stage. Collective over
  /// each set's groups. Throws BatchError on all ranks of a group, naming feature, sample and table
  /// of an id that is outside its table; Error(kComm) naming the rank for another version,
  /// step or layout.
  void exchange_counts(Context& ctx,
                       SparseStep& step,
                       const BatchView& batch,
                       std::span<const std::byte> control);

  /// Takes part in that of step `number` without a batch, because of `error`. Throws BatchError,
  /// here and on all ranks of the groups.
  void refuse_batch(Context& ctx, SparseStep& step, std::int64_t number, const Error& error);

  /// Runs a stage, in the order above. lookup and coalesce exchange nothing, exchange_ids,
  /// output_dist and grad_dist are collective over the groups, and update over all ranks. Rows that
  /// overflow are counted in overflow().
  void exchange_ids(Context& ctx, SparseStep& step);
  void fetch(Context& ctx, SparseStep& step);
  /// Those of one micro-batch take its number; all ranks run them in the order of micro-batches.
  void lookup(Context& ctx, SparseStep& step, std::int64_t cut = 0);
  void output_dist(Context& ctx, SparseStep& step, std::int64_t cut = 0);
  void coalesce(Context& ctx, SparseStep& step);
  void grad_dist(Context& ctx, SparseStep& step, std::int64_t cut = 0);
  void update(Context& ctx, SparseStep& step, const embedding::UpdateStep& update);

  /// Gives up the slots of a batch that is not updated: behind an evaluation, in place of update(),
  /// and behind all stages of a batch that has failed. Does nothing behind update().
  void release(SparseStep& step);

  /// Makes the replicas of every set equal after the update of `step`, where they are not. Until it
  /// returns no other stage reads or writes rows or their state: no lookup, update, store_hot_rows
  /// or load_hot_rows.
  void sync_replicas(Context& ctx, std::int64_t step);

  /// Routing of the first set: features of the others have their columns in it, and no slots.
  [[nodiscard]] const Routing& routing() const { return sets_.front()->tables->routing(); }

  [[nodiscard]] std::size_t num_sets() const { return sets_.size(); }

  /// Rows that overflowed since construction, on this rank; the first by table. Rows of a replica
  /// and hot rows count on rank 0 alone.
  [[nodiscard]] TableOverflow overflow() const;

  /// What lookups have read since construction, on this rank, in the order of tables.
  [[nodiscard]] std::vector<TableReads> reads() const;

  /// What this rank has sent of vectors, gradients and row statistics, over all sets.
  [[nodiscard]] comm::Traffic vector_traffic() const;

  /// Values that syncs of replicas have clipped or found non-finite, over all sets.
  [[nodiscard]] SyncClips sync_clips() const;

  /// What encoding syncs has lost, as state, set after set.
  [[nodiscard]] std::vector<ResidualState*> sync_residuals() const;

  /// The shards held here, set after set: all state, once hot rows have been stored.
  [[nodiscard]] std::vector<embedding::TableShard*> shards() const;

  /// The copies of hot rows, set after set: what all ranks hold alike.
  [[nodiscard]] std::vector<embedding::TableShard*> hot_shards() const;

  /// Copies the hot rows into the shards that cover them, before these are read. No exchange. With
  /// a codec of syncs at a sync only.
  void store_hot_rows(Context& ctx);

  /// Fills the copies of hot rows from the shards, after these have been written, and takes these
  /// as equal on all groups. Collective.
  void load_hot_rows(Context& ctx);

  /// Where rows on disks lie; null where this rank has none.
  [[nodiscard]] const DiskRows* disk_rows() const { return disk_rows_.get(); }

  /// Bytes of rows and optimizer state held here.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Set {
    spec::Config config;  // with the mesh of the set
    spec::Plan plan;
    std::unique_ptr<ReplicaSet> tables;
  };

  /// Calls visit(ReplicaSet&, ReplicaSetStep&) for set after set.
  template <typename Visit>
  void for_each_set(SparseStep& step, const Visit& visit);
  /// Appends what of(ReplicaSet&) returns, set after set.
  template <typename T, typename Of>
  [[nodiscard]] std::vector<T> of_all_sets(const Of& of) const;

  std::unique_ptr<DiskRows> disk_rows_;     // null where this rank has none
  std::vector<std::unique_ptr<Set>> sets_;  // in ascending numbers of groups
};

}  // namespace weft::sharding
