/// ReplicaSet: the tables of a job that have one number of replica groups, as one rank sees them.
/// Here `embedding`, which knows no ranks, meets `comm`, which knows no tables. ShardedEmbeddings
/// (sharded_embeddings.h) has one of these per number of groups; its header describes a step.
///
/// State       rows, optimizer state, routing and communicators live here; what a batch has in
///             flight is in a ReplicaSetStep, which each stage takes as an argument.
/// Mesh        with several replica groups (weft/spec/mesh.h) every group has all tables, sharded
///             over its ranks alike, and looks up and updates with its own samples. Where groups
///             are averaged, their row gradients count M times, so that the average of SGD steps
///             is the step of the whole batch. data_parallel tables are replicas on all ranks of
///             all groups, as hot rows are: their gradients are gathered over these, never
///             averaged.
/// Threads     stages of one step and of different ones may run beside each other as
///             weft/pipeline/stage.h declares. Communicators part accordingly: "ids"; "vectors",
///             for vectors and gradients; "rows", for row statistics and copies of rows; and
///             "replicas", which is used by sync_replicas() alone where groups are averaged.
/// Determinism bits are those of one rank, at equal parts, where no bag is split between cuts of
///             rows or such tables are pooled at the sample; otherwise those of row_wise with the
///             same cuts of rows.
/// Source      ZionEX (arXiv 2104.05158) sections 2 and 4.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/layout/row_sums.h"
#include "weft/sharding/disk_rows.h"
#include "weft/sharding/hot_rows.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/output_dist.h"
#include "weft/sharding/paths/paths.h"
#include "weft/sharding/replica_average.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/row_sync.h"
#include "weft/sharding/sparse_step.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

/// Rows that were left as they were because their sum or update overflowed.
struct TableOverflow {
  std::int64_t count = 0;
  std::int64_t table = -1;  ///< of the first, by table
  std::int64_t row = -1;    ///< in the whole table
};

/// What lookups have read of one table.
struct TableReads {
  std::int64_t table = 0;
  std::int64_t rows = 0;   ///< one per id, repeated or not; fetched: per row and asking rank
  std::int64_t bytes = 0;  ///< of their weights
};

/// The settings that neither configuration nor plan has.
struct ReplicaSetOptions {
  std::int64_t control_bytes = 8;  ///< of the caller's block in the counts exchange
  std::string name = {};           ///< behind the names of its communicators
  DiskRows* disk_rows = nullptr;   ///< of this rank's shards on disks; null where it has none
  std::optional<layout::RowSums> row_sums = {};  ///< in place of the rule's (layout::row_sums())
};

/// What the plan asks of a communicator.
inline comm::Form form_of(spec::CollectiveForm form) {
  return form == spec::CollectiveForm::kFlat ? comm::Form::kFlat : comm::Form::kHierarchical;
}

class ReplicaSet {
 public:
  /// Allocates and initialises this rank's shards. `world`'s ranks are the positions of the plan's
  /// mesh; makes communicators of its own, of the plan's forms (collective). Config, plan and
  /// device must outlive it. A table has the plan's groups, or no shards in the plan: then it is of
  /// another set, and its features' columns are left alone.
  ReplicaSet(const spec::Config& config,
             const spec::Plan& plan,
             comm::Communicator& world,
             Device& device,
             const ReplicaSetOptions& options);

  /// Returns memory for one batch in flight. `matrices` is the step whose feature matrices this one
  /// uses too, or null to own some; it outlives the new step.
  [[nodiscard]] std::unique_ptr<ReplicaSetStep> make_step(const SparseStepOptions& options,
                                                          const ReplicaSetStep* matrices);

  /// Runs a stage of ShardedEmbeddings for the tables of this set.
  void exchange_counts(Context& ctx,
                       ReplicaSetStep& step,
                       const BatchView& batch,
                       std::span<const std::byte> control);
  void refuse_batch(Context& ctx, ReplicaSetStep& step, std::int64_t number, const Error& error);
  void exchange_ids(Context& ctx, ReplicaSetStep& step);
  void fetch(Context& ctx, ReplicaSetStep& step);
  void lookup(Context& ctx, ReplicaSetStep& step, std::int64_t cut);
  void output_dist(Context& ctx, ReplicaSetStep& step, std::int64_t cut);
  void coalesce(Context& ctx, ReplicaSetStep& step);
  void grad_dist(Context& ctx, ReplicaSetStep& step, std::int64_t cut);
  void update(Context& ctx, ReplicaSetStep& step, const embedding::UpdateStep& update);

  /// Gives up what fetch() and lookup() hold of a batch that no update has changed.
  static void release(ReplicaSetStep& step);

  /// Makes the replicas of all groups equal after the update of `step`, if any update has let them
  /// part. Where there is one group, or gradients are exchanged, they never do. Until it returns
  /// nobody else reads or writes rows or their state: no lookup, update, store_hot_rows or
  /// load_hot_rows.
  void sync_replicas(Context& ctx, std::int64_t step);

  [[nodiscard]] const Routing& routing() const { return routing_; }

  /// Since construction, on this rank; rows of a replica and hot rows on rank 0 alone.
  [[nodiscard]] TableOverflow overflow() const;

  /// Since construction, on this rank: per shard and per copy of hot rows held here, in the order
  /// of tables.
  [[nodiscard]] std::vector<TableReads> reads() const;

  /// Since construction, of what this rank has encoded of syncs of replicas.
  [[nodiscard]] SyncClips sync_clips() const { return average_ ? average_->clips() : SyncClips{}; }

  /// What encoding syncs has lost, as state; none where nothing is kept.
  [[nodiscard]] std::vector<ResidualState*> sync_residuals() const;

  /// What this rank has sent of vectors, gradients and row statistics.
  [[nodiscard]] comm::Traffic vector_traffic() const {
    comm::Traffic all = vectors_comm_->traffic();
    all += rows_comm_->traffic();
    return all;
  }

  /// The shards held here, in the order of tables: all state, once hot rows have been stored.
  [[nodiscard]] std::vector<embedding::TableShard*> shards() const;

  /// The copies of hot rows, in the order of tables: what all ranks hold alike.
  [[nodiscard]] std::vector<embedding::TableShard*> hot_shards() const;

  /// Copies the hot rows into the shards that cover them, before these are read. No exchange. With
  /// a codec of syncs at a sync only.
  void store_hot_rows(Context& ctx);

  /// Fills the copies of hot rows from the shards, after these have been written, and takes these
  /// as equal on all groups. Collective.
  void load_hot_rows(Context& ctx);

  /// Bytes of rows and optimizer state held here.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct LocalShard {
    std::int64_t table = 0;
    std::int64_t shard = 0;   // index in the table's plan, or kHotShard
    bool replicated = false;  // or hot
    std::unique_ptr<embedding::TableShard> rows;
    std::vector<std::int64_t> slots;  // own slots (or replicated slots) that read it, by feature
    std::int64_t rows_read = 0;
  };

  enum class UpdatePath : std::uint8_t { kWhole, kColumns, kReplicated };

  void make_shards(Device& device);
  void add_shard(const LocalShard& place,
                 const RowSet& rows,
                 Range cols,
                 std::vector<std::int64_t> row_list,
                 Device& device);
  [[nodiscard]] std::vector<HotTable> hot_tables() const;
  void make_sync(Device& device);
  [[nodiscard]] std::unique_ptr<ReplicaSync> make_row_sums(
      comm::Communicator& comm, std::span<embedding::TableShard* const> shards) const;
  void make_replica_sync(Device& device);
  [[nodiscard]] UpdatePath path(const LocalShard& local) const;
  [[nodiscard]] ColumnGroup column_group(const LocalShard& local) const;
  static void release(ReplicaSetStep& step, storage::Release how);
  void list_fetched(ReplicaSetStep& step, std::size_t shard) const;
  void fetch_rows(Context& ctx, ReplicaSetStep& step);
  static void fetch_late(Context& ctx, ReplicaSetStep& step);
  /// Shards whose rows only this group updates, and copies that all ranks update.
  enum class Updated : std::uint8_t { kShards, kCopies };

  void fetch_updated(Context& ctx, ReplicaSetStep& step, Updated which) const;
  void resolve_updates(Context& ctx, ReplicaSetStep& step, Updated which) const;
  [[nodiscard]] bool shares_jobs() const;
  void list_lookups(ReplicaSetStep& step, std::size_t shard, std::int64_t cut);
  void list_gradient_blocks(ReplicaSetStep& step, std::size_t shard) const;

  /// Calls visit(ServedBlock, SlotKind) for the blocks of a shard, in the order of addition.
  template <typename Visit>
  void for_each_block(const ReplicaSetStep& step,
                      const LocalShard& local,
                      const Visit& visit) const {
    const IncomingBlocks& blocks = step.input.incoming.blocks;
    for (const std::int64_t j : local.slots) {
      if (local.replicated) {
        const SlotAddress address{routing_.replicated(), j};
        visit(step.input.served_block(address, rank_), routing_.kind(address));
        continue;
      }
      const SlotKind& kind = routing_.kind({rank_, j});
      blocks.for_slot(j, [&](std::int64_t source, std::int64_t place) {
        visit(ServedBlock{{rank_, j}, source, place, blocks.at_place(place)}, kind);
      });
    }
  }

  const spec::Config& config_;
  const spec::Plan& plan_;
  std::int64_t group_;
  Routing routing_;
  std::unique_ptr<comm::Communicator> ids_comm_, vectors_comm_, rows_comm_;  // of the group
  std::unique_ptr<comm::Communicator> all_comm_;       // all groups; null where there is one
  std::unique_ptr<comm::Communicator> replicas_comm_;  // who holds the same shards; null as above
  Device& device_;
  std::int64_t control_bytes_;
  std::optional<layout::RowSums> row_sums_;
  std::int64_t rank_;  // in the group
  Paths paths_;
  InputDist input_;
  OutputDist output_;
  std::vector<LocalShard> shards_;
  std::unique_ptr<ColumnSync> columns_;
  std::unique_ptr<ReplicaSync> replicas_;         // of data_parallel tables and hot rows
  std::unique_ptr<ReplicaSync> group_gradients_;  // where groups exchange them
  std::unique_ptr<ReplicaAverage> average_;       // where groups are averaged
  DiskRows* disk_rows_;
  bool replicas_differ_ = false;  // since an update behind the last average
};

}  // namespace weft::sharding
