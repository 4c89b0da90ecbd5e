/// Routing: which rank serves which shard of which feature. Derived once from configuration and
/// plan, equal on all ranks, static for the whole run.
///
/// Notation   F features, W ranks. A *slot* is one (feature, shard) pair: the unit of all three
///            exchanges. The shards of a table form a grid of R cuts of rows and C of columns:
///            1 x 1 for table_wise, R x 1 for row_wise, 1 x C for column_wise, R x C for
///            grid_shard. A feature of a data_parallel table has one slot that its own rank serves
///            from its replica without any exchange.
///            A table that is pooled at the sample (spec::PooledAt) is *fetched*: its features have
///            no slots, and the table has one per shard, of rows.
///            The *hot rows* of a table (spec::TablePlan::hot) are one more cut of rows, the last,
///            that every rank serves for itself: one slot of whole rows, served as data_parallel's
///            are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "weft/base/micro_batches.h"
#include "weft/base/parts.h"
#include "weft/layout/paths.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

/// In place of a shard's index.
inline constexpr std::int64_t kHotShard = -1;

using layout::Path;  // weft/sharding/paths has a file for each

/// The demand of one feature on one shard; of a fetched table that of all its features together.
struct Slot {
  std::int64_t feature = 0;
  std::int64_t table = 0;
  std::int64_t shard = 0;  ///< index in TablePlan::shards, 0 for data_parallel, or kHotShard
  RowSet rows;             ///< of the shard, absolute; of hot rows [0, their number)
  Range cols;
  bool sequence = false;         ///< one vector per id instead of one per non-empty bag
  bool weighted = false;         ///< per-id weights travel with the ids
  std::int64_t id_bytes = 4;     ///< of an id on the wire (wire_ids.h), equal for a table's slots
  std::int64_t fetch = -1;       ///< of a fetched table: index in Routing::fetches; `feature` is -1
  bool packed = false;           ///< of a fetched table: its rows travel packed (wire_ids.h)
  std::int64_t row_cut = 0;      ///< which of its feature's or table's cuts of rows it is of
  Path path = Path::kWholeBags;  ///< for samples of other ranks than the server (Routing::path)
  Path tail = Path::kWholeBags;  ///< that of the other cuts, where `path` is of hot rows

  [[nodiscard]] std::int64_t dim() const { return cols.size(); }
};

/// Where a slot is served: `server` is a rank, or Routing::replicated() for data_parallel and
/// hot rows; `slot` is its index in Routing::served[server].
struct SlotAddress {
  std::int64_t server = 0;
  std::int64_t slot = 0;
};

/// The slots of a feature, or of a fetched table, by the cuts of rows that they ask for.
struct RowCuts {
  std::vector<SlotAddress> slots;  ///< [R, C] one per shard, then that of the hot rows, if any
  std::vector<RowSet> rows;        ///< [R] of each cut, for finding an id's
  std::vector<Range> hot;          ///< the hot rows, in none of the cuts before; may be empty
  std::int64_t col_cuts = 1;       ///< C

  /// R, and one for the hot rows.
  [[nodiscard]] std::int64_t row_cuts() const {
    return static_cast<std::int64_t>(rows.size()) + (hot.empty() ? 0 : 1);
  }

  /// The slots of one cut of rows, which are asked for the same ids: [C] by column, one of the
  /// hot rows.
  [[nodiscard]] std::span<const SlotAddress> row_cut(std::int64_t r) const {
    const bool is_hot = r == static_cast<std::int64_t>(rows.size());
    return std::span(slots).subspan(static_cast<std::size_t>(r * col_cuts),
                                    static_cast<std::size_t>(is_hot ? 1 : col_cuts));
  }
};

/// `slots` is empty where the table is fetched, or of another set of tables (replica_set.h).
struct FeatureRoute : RowCuts {
  std::string name;  ///< as configured
  std::int64_t table = 0;
  spec::Sharding sharding = spec::Sharding::kTableWise;
  spec::Pooling pooling = spec::Pooling::kSum;
  bool weighted = false;            ///< ids have weights
  std::int64_t dim = 0;             ///< D of the whole table
  std::int64_t num_embeddings = 0;  ///< E of the whole table
  std::int64_t pooled_column = -1;  ///< first column in the pooled output, -1 for sequences
  std::int64_t fetch = -1;          ///< of a fetched table: index in Routing::fetches
  bool is_here = true;              ///< else of another set: it has columns, and no ids or vectors
  Path path = Path::kWholeBags;     ///< of its slots but that of hot rows
};

/// A table whose rows are cut, of which a rank asks for the rows that its samples need.
struct RowFetch : RowCuts {
  std::int64_t table = 0;
  std::string name;                    ///< of the table, for messages
  std::int64_t dim = 0;                ///< D of the whole table
  std::vector<std::int64_t> features;  ///< that read it, as configured
};

struct Routing {
  /// Of `group` of the plan's mesh (weft/spec/mesh.h): ranks are places in it. Tables without
  /// shards in the plan are of another set.
  Routing(const spec::Config& config, const spec::Plan& plan, std::int64_t group = 0);

  /// Index in `served` of the slots that every rank serves from its own replica or hot rows.
  [[nodiscard]] std::int64_t replicated() const { return ranks; }

  /// Whether `rank` serves the slot for its own samples.
  [[nodiscard]] bool served_by(const SlotAddress& address, std::int64_t rank) const {
    return address.server == rank || address.server == replicated();
  }

  [[nodiscard]] const Slot& slot(const SlotAddress& address) const {
    return served[static_cast<std::size_t>(address.server)][static_cast<std::size_t>(address.slot)];
  }

  /// What a slot is of, for messages.
  [[nodiscard]] std::string name_of(const Slot& slot) const {
    return slot.fetch < 0 ? "feature " + features[static_cast<std::size_t>(slot.feature)].name
                          : "table " + fetches[static_cast<std::size_t>(slot.fetch)].name;
  }

  /// The path between the slot's server and the samples of `source`: a rank that serves itself
  /// whole bags does so in place.
  [[nodiscard]] Path path(const SlotAddress& address, std::int64_t source) const {
    const layout::PathBlock block{.path = slot(address).path, .own = address.server == source};
    return block.taken();
  }

  /// The path by which the samples of `rank` ask for a feature's ids: in place where all its slots
  /// are.
  [[nodiscard]] Path asks(std::int64_t feature, std::int64_t rank) const;

  /// Parts of the global batch that `rank` has, and its samples of one of `global_size`.
  [[nodiscard]] Range own_parts(std::int64_t rank) const {
    return rank_parts(parts, positions, first_position + rank);
  }

  [[nodiscard]] Range own_samples(std::int64_t global_size, std::int64_t rank) const {
    return rank_samples(global_size, parts, positions, first_position + rank);
  }

  /// The parts of a micro-batch of `rank`.
  [[nodiscard]] Range cut_parts(std::int64_t rank, std::int64_t cut) const {
    return micro_batches.parts(own_parts(rank), cut);
  }

  /// Its bags, among those of the rank's part of a batch.
  [[nodiscard]] Range cut_bags(std::int64_t global_size,
                               std::int64_t rank,
                               std::int64_t cut) const {
    const Range of_cut = cut_parts(rank, cut);
    const std::int64_t first = own_samples(global_size, rank).begin;
    return {part_samples(global_size, parts, of_cut.begin).begin - first,
            part_samples(global_size, parts, of_cut.end).begin - first};
  }

  /// Runs of the rank's parts, each in one micro-batch and in one of its nodes().
  [[nodiscard]] std::vector<Range> runs(std::int64_t rank) const {
    return micro_batches.runs(parts, own_parts(rank));
  }

  /// The maximal whole subtrees of the rank's parts.
  [[nodiscard]] std::vector<Range> nodes(std::int64_t rank) const {
    return maximal_subtrees(parts, own_parts(rank));
  }

  std::int64_t ranks = 1;                 ///< of the group
  std::int64_t parts = 1;                 ///< of the global batch, over all groups
  std::int64_t positions = 1;             ///< ranks of all groups
  std::int64_t first_position = 0;        ///< of rank 0 among them
  MicroBatches micro_batches;             ///< of every batch
  std::int64_t pooled_columns = 0;        ///< width of the pooled output
  std::vector<FeatureRoute> features;     ///< [F], as configured
  std::vector<RowFetch> fetches;          ///< fetched tables that some feature reads
  std::vector<std::vector<Slot>> served;  ///< [W + 1], ordered by feature, then shard; then rows

 private:
  void add_slots(const spec::TablePlan& plan, const Slot& slot, RowCuts& cuts);
  void add_features(const spec::Config& config, const spec::Plan& plan);
  void add_fetched(const spec::Config& config, const spec::Plan& plan);
};

}  // namespace weft::sharding
