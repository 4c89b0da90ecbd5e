/// EmbeddingSets: all tables of a job as one rank sees them, by their numbers of replica groups.
///
/// Notation   M groups of the mesh, W ranks. A *set* is the tables of K groups, K a divisor of M;
/// its
///            groups are M/K neighbouring ones of the mesh each (weft/spec/mesh.h). Where all
///            tables have M there is one set.
/// Sets       each is a ShardedEmbeddings with a plan and communicators of its own, over W/K ranks:
///            an exchange of ids, and one of vectors each way, per set and step. Samples and parts
///            are dealt by position, so all sets see the same batch. c, the multiple of a group's
///            gradients, and the number of replicas that a sync averages are K.
///            Sets go in ascending K: the first is that of the largest groups. The caller's control
///            block travels with its counts, and data_parallel tables, which all ranks hold alike
///            whatever the groups, are with it.
/// Matrices   outputs() and gradients() are one each, of all features: of the first set, the others
///            write and read their columns there.
/// Stages     as of ShardedEmbeddings, in the same order; each runs set after set.
/// Threads    one stage at a time.
/// Cost       with one set that of ShardedEmbeddings, in messages and bits too; with n sets n times
///            the messages of each exchange, and a pass over the features of each.
/// Source     the groups' layout: arXiv 2508.03854; sets with different numbers of them: our own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "weft/comm/communicator.h"
#include "weft/embedding/table_shard.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

class EmbeddingSets {
 public:
  /// Allocates and initialises this rank's shards. `world`'s ranks are the positions of the plan's
  /// mesh. Collective. Keeps copies of config and plan. options.set and options.matrices are not
  /// the caller's.
  EmbeddingSets(const spec::Config& config,
                const spec::Plan& plan,
                comm::Communicator& world,
                Device& device,
                const ShardedEmbeddingsOptions& options);

  [[nodiscard]] std::size_t num_sets() const { return sets_.size(); }

  /// Exchanges the counts of every set, with `control` [options.control_bytes] among those of the
  /// first. Collective over each set's groups; errors are those of InputDist.
  void exchange_counts(Context& ctx, const BatchView& batch, std::span<const std::byte> control);

  /// The control block of place `rank` of this rank's group of the first set, which has
  /// Plan::most_ranks() ranks.
  [[nodiscard]] std::span<const std::byte> control(std::int64_t rank) const {
    return first().control(rank);
  }

  /// Runs a stage of ShardedEmbeddings in set after set; the order of stages is that header's. All
  /// but clear_grown, lookup and coalesce are collective.
  void exchange_ids(Context& ctx);
  void clear_grown(Context& ctx);  ///< see OutputDist
  void lookup(Context& ctx);
  void output_dist(Context& ctx);
  void coalesce(Context& ctx);
  void grad_dist(Context& ctx);
  void update(Context& ctx, const embedding::UpdateStep& step);

  /// Makes the replicas of every set equal after the update of `step`, where they are not.
  void sync_replicas(Context& ctx, std::int64_t step);

  /// As of ShardedEmbeddings, of all features.
  [[nodiscard]] FeatureMatrices& outputs() { return first().outputs(); }

  [[nodiscard]] FeatureMatrices& gradients() { return first().gradients(); }

  /// Of the first set: features of the others have their columns in it, and no slots.
  [[nodiscard]] const Routing& routing() const { return first().routing(); }

  /// Since construction, on this rank; see ShardedEmbeddings. The first by table.
  [[nodiscard]] TableOverflow overflow() const;

  /// In the order of tables.
  [[nodiscard]] std::vector<TableReads> reads() const;

  /// Returns the values of a table that this rank's codecs have clipped or found non-finite since
  /// construction. REQUIRES: `table` is an index in Config::tables.
  [[nodiscard]] TableClips codec_clips(std::int64_t table) const;

  /// Of syncs of replicas, of all sets together.
  [[nodiscard]] SyncClips sync_clips() const;

  /// What encoding syncs has lost, as state, set after set.
  [[nodiscard]] std::vector<SyncResiduals*> sync_residuals() const;

  /// The shards held here, and the copies of hot rows, set after set.
  [[nodiscard]] std::vector<embedding::TableShard*> shards() const;
  [[nodiscard]] std::vector<embedding::TableShard*> hot_shards() const;

  /// Copies the hot rows of every set into its shards, and fills them from there, as those of
  /// ShardedEmbeddings do.
  void store_hot_rows(Context& ctx);
  void load_hot_rows(Context& ctx);  ///< Collective.

  /// Bytes of rows and optimizer state held here.
  [[nodiscard]] std::int64_t bytes() const;

 private:
  struct Set {
    spec::Config config;  // with its number of groups
    spec::Plan plan;      // with shards of its tables alone
    std::unique_ptr<ShardedEmbeddings> tables;
  };

  [[nodiscard]] ShardedEmbeddings& first() const { return *sets_.front()->tables; }

  std::vector<std::unique_ptr<Set>> sets_;  // ascending number of groups
  std::vector<std::size_t> set_of_table_;
};

}  // namespace weft::sharding
