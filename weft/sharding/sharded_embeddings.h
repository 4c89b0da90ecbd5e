/// ShardedEmbeddings: the tables of a job, or of one set of them (embedding_sets.h), as one rank
/// sees them. Here `embedding`, which knows no ranks, meets `comm`, which knows no tables.
///
/// One step, each line a stage body, in this order on every rank:
///
///   exchange_counts   ids cut into slots; counts, header and control block exchanged   (1 a2a)
///   exchange_ids      ids travel to the ranks that serve them, onto the device         (1 a2a)
///   lookup            rows are read, once per id: of this rank's samples into outputs(), of others
///                     into the exchange's buffer
///   output_dist       vectors travel back and are assembled into outputs()             (1 a2a)
///   ...               the caller fills gradients()
///   coalesce          (row, part) sorted; needs ids only
///   grad_dist         gradients travel to the servers                                  (1 a2a)
///   update            duplicates summed up the tree of parts, optimizer once per row
///                     (+ 1 exchange of row statistics, + 1 for max-norm, + 2 for data_parallel,
///                     each only where a table needs it; of several groups with sync gradients,
///                     row gradients are first summed over the groups, + 2)
///   sync_replicas     averages the replicas of the groups, every mesh.sync_every steps and at the
///                     end (weft/sharding/replica_average.h)
///
/// Mesh          of several replica groups (weft/spec/mesh.h) every group has all tables, sharded
///               over its ranks alike, and looks up and updates with its own samples. Where groups
///               are averaged, their row gradients count M times, so that the average of SGD steps
///               is the step of the whole batch. data_parallel tables are replicas on all ranks of
///               all groups, as hot rows are: their gradients are gathered over these, never
///               averaged.
///
/// Threads       one stage at a time; but sync_replicas() may run on a thread of its own, beside
///               exchange_counts and exchange_ids of the next step, which touch no row, no state
///               and no list of touched rows. Its communicator ("replicas") is used by nothing else
///               where groups are averaged.
/// Determinism   bits are those of one rank, at equal parts, where no bag is split between cuts of
///               rows or such tables are pooled at the sample; otherwise those of row_wise with
///               the same cuts of rows.
/// Source        ZionEX (arXiv 2104.05158) sections 2 and 4.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/sharding/hot_rows.h"
#include "weft/sharding/input_dist.h"
#include "weft/sharding/output_dist.h"
#include "weft/sharding/replica_average.h"
#include "weft/sharding/routing.h"
#include "weft/sharding/row_sync.h"
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

/// Values of a table's vectors and gradients that codecs clipped or found non-finite.
struct TableClips {
  kernels::CodecClips forward, backward;

  friend bool operator==(const TableClips&, const TableClips&) = default;
};

class ShardedEmbeddings;

/// The settings that neither configuration nor plan has. EmbeddingSets fills in `set` and
/// `matrices`; who makes a single ShardedEmbeddings leaves them.
struct ShardedEmbeddingsOptions {
  std::int64_t control_bytes = 8;  ///< of the caller's block in the counts exchange
  std::string set = {};            ///< behind the names of its communicators
  /// Whose outputs() and gradients() these are too (embedding_sets.h); null: its own.
  const ShardedEmbeddings* matrices = nullptr;
};

/// What the plan asks of a communicator.
inline comm::Form form_of(spec::CollectiveForm form) {
  return form == spec::CollectiveForm::kFlat ? comm::Form::kFlat : comm::Form::kHierarchical;
}

class ShardedEmbeddings {
 public:
  /// Allocates and initialises this rank's shards. `world`'s ranks are the positions of the plan's
  /// mesh; makes communicators of its own, of the plan's forms (collective). Config, plan and
  /// options.matrices must outlive it. A table has the plan's groups, or no shards in the plan:
  /// then it is of another set, and its features' columns are left alone.
  ShardedEmbeddings(const spec::Config& config,
                    const spec::Plan& plan,
                    comm::Communicator& world,
                    Device& device,
                    const ShardedEmbeddingsOptions& options);

  /// Begins a step: cuts the batch into slots and exchanges counts and `control`
  /// [options.control_bytes]. Collective over the group; errors are those of InputDist.
  void exchange_counts(Context& ctx, const BatchView& batch, std::span<const std::byte> control);

  /// Of `rank` of the group.
  [[nodiscard]] std::span<const std::byte> control(std::int64_t rank) const;
  void exchange_ids(Context& ctx);

  void clear_grown(Context& ctx) { output_.clear_grown(ctx); }  ///< see OutputDist

  /// Runs a stage of the header, in its order; an evaluation ends with output_dist. lookup and
  /// coalesce exchange nothing, output_dist and grad_dist are collective over the group, and update
  /// over all groups. Rows that overflow are counted in overflow().
  void lookup(Context& ctx);
  void output_dist(Context& ctx);
  void coalesce(Context& ctx);
  void grad_dist(Context& ctx);
  void update(Context& ctx, const embedding::UpdateStep& step);

  /// Makes the replicas of all groups equal after the update of `step`, if any update has let them
  /// part. Where there is one group, or gradients are exchanged, they never do. Until it returns
  /// nobody else reads or writes rows or their state: no lookup, update, store_hot_rows or
  /// load_hot_rows.
  void sync_replicas(Context& ctx, std::int64_t step);

  /// Vectors of this rank's samples, valid from output_dist to the next exchange_ids.
  [[nodiscard]] FeatureMatrices& outputs() { return output_.outputs(); }

  /// To be filled by the caller between output_dist and grad_dist: the same shapes. Those of means
  /// are divided there in place, and update() reads them: they stay as they are until it is done.
  [[nodiscard]] FeatureMatrices& gradients() { return output_.gradients(); }

  [[nodiscard]] const Routing& routing() const { return routing_; }

  /// Since construction, on this rank; rows of a replica and hot rows on rank 0 alone.
  [[nodiscard]] TableOverflow overflow() const;

  /// Since construction, on this rank: per shard and per copy of hot rows held here, in the order
  /// of tables.
  [[nodiscard]] std::vector<TableReads> reads() const;

  /// Since construction, of what this rank has encoded (weft/kernels/codec.h, "Limits").
  [[nodiscard]] TableClips codec_clips(std::int64_t table) const {
    return {.forward = output_.forward_clips(table), .backward = output_.backward_clips(table)};
  }

  /// The same of syncs of replicas, where they are encoded.
  [[nodiscard]] SyncClips sync_clips() const { return average_ ? average_->clips() : SyncClips{}; }

  /// What encoding syncs has lost, as state; none where nothing is kept.
  [[nodiscard]] std::vector<SyncResiduals*> sync_residuals() const;

  /// What this rank has sent of vectors, gradients and row statistics.
  [[nodiscard]] comm::Traffic vector_traffic() const { return vectors_comm_->traffic(); }

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
    std::unique_ptr<embedding::RowGradients> gradients;
    std::vector<std::int64_t> slots;  // own slots (or replicated slots) that read it, by feature
    std::vector<embedding::GradientBlock> gradient_blocks;
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
  void make_replica_sync(Device& device);
  [[nodiscard]] UpdatePath path(const LocalShard& local) const;
  [[nodiscard]] ColumnGroup column_group(const LocalShard& local) const;
  void add_lookup(const LocalShard& local,
                  const SlotAddress& address,
                  const IncomingBlock& block,
                  std::int64_t source);
  void add_gradient_block(LocalShard& local,
                          const SlotAddress& address,
                          const IncomingBlock& block,
                          std::int64_t source);
  /// Calls visit(slot address, block, source) for the blocks of a shard, in the order of addition.
  template <typename Visit>
  void for_each_block(const LocalShard& local, const Visit& visit) const;

  const spec::Config& config_;
  const spec::Plan& plan_;
  std::int64_t group_;
  Routing routing_;
  std::unique_ptr<comm::Communicator> ids_comm_, vectors_comm_;  // of the group
  std::unique_ptr<comm::Communicator> all_comm_;       // all groups; null where there is one
  std::unique_ptr<comm::Communicator> replicas_comm_;  // who holds the same shards; null as above
  std::int64_t rank_;                                  // in the group
  InputDist input_;
  OutputDist output_;
  std::vector<LocalShard> shards_;
  std::vector<embedding::RowGradients*> whole_;  // updated without help from other ranks
  std::vector<embedding::RowGradients*> cut_;    // whose updates look at other columns
  std::unique_ptr<ColumnSync> columns_;
  std::vector<embedding::RowGradients*> copied_;  // of data_parallel tables and hot rows
  std::unique_ptr<ReplicaSync> replicas_;
  std::vector<embedding::RowGradients*> sharded_;  // of which other groups hold replicas
  std::unique_ptr<ReplicaSync> group_gradients_;   // where groups exchange them
  std::unique_ptr<ReplicaAverage> average_;        // where groups are averaged
  bool replicas_differ_ = false;                   // since an update behind the last average
  std::vector<std::pair<embedding::TableShard*, embedding::Lookup>> lookups_;
  std::vector<std::pair<embedding::RowGradients*, std::span<const embedding::GradientBlock>>>
      coalesces_;
};

}  // namespace weft::sharding
