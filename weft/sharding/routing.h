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
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/parts.h"
#include "weft/spec/config.h"
#include "weft/spec/plan.h"

namespace weft::sharding {

struct Slot {
  std::int64_t feature = 0;
  std::int64_t table = 0;
  std::int64_t shard = 0;  ///< index in TablePlan::shards, 0 for data_parallel
  RowSet rows;             ///< of the shard, absolute
  Range cols;
  bool sequence = false;    ///< one vector per id instead of one per non-empty bag
  bool weighted = false;    ///< per-id weights travel with the ids
  bool wide_ids = false;    ///< ids need 8 bytes on the wire
  std::int64_t fetch = -1;  ///< of a fetched table: index in Routing::fetches; `feature` is -1

  /// Whether what is asked for are rows, each once, and not bags of a feature.
  [[nodiscard]] bool of_rows() const { return fetch >= 0; }

  [[nodiscard]] std::int64_t dim() const { return cols.size(); }
};

/// Where a slot is served: `server` is a rank, or Routing::replicated() for data_parallel;
/// `slot` is its index in Routing::served[server].
struct SlotAddress {
  std::int64_t server = 0;
  std::int64_t slot = 0;
};

struct FeatureRoute {
  std::int64_t table = 0;
  spec::Sharding sharding = spec::Sharding::kTableWise;
  spec::Pooling pooling = spec::Pooling::kSum;
  bool weighted = false;            ///< ids have weights
  std::int64_t dim = 0;             ///< D of the whole table
  std::int64_t num_embeddings = 0;  ///< E of the whole table
  std::int64_t pooled_column = -1;  ///< first column in the pooled output, -1 for sequences
  std::int64_t fetch = -1;          ///< of a fetched table: index in Routing::fetches
  std::vector<SlotAddress> slots;   ///< [R, C] one per shard; none of a fetched table
  std::vector<RowSet> rows;         ///< [R] of each cut, for finding an id's
  std::int64_t col_cuts = 1;        ///< C

  [[nodiscard]] bool fetched() const { return fetch >= 0; }

  [[nodiscard]] std::int64_t row_cuts() const { return static_cast<std::int64_t>(rows.size()); }

  /// Whether the ids of a bag go to different cuts of rows.
  [[nodiscard]] bool split() const { return row_cuts() > 1; }

  /// The slots of one cut of rows, which are asked for the same ids: [C] by column.
  [[nodiscard]] std::span<const SlotAddress> row_cut(std::int64_t r) const {
    return std::span(slots).subspan(static_cast<std::size_t>(r * col_cuts),
                                    static_cast<std::size_t>(col_cuts));
  }
};

/// A table whose rows are cut, of which a rank asks for the rows that its samples need.
struct RowFetch {
  std::int64_t table = 0;
  std::int64_t dim = 0;                ///< D of the whole table
  std::vector<std::int64_t> features;  ///< that read it, as configured
  std::vector<SlotAddress> slots;      ///< [R, C] one per shard
  std::vector<RowSet> rows;            ///< [R]
  std::int64_t col_cuts = 1;           ///< C

  [[nodiscard]] std::int64_t row_cuts() const { return static_cast<std::int64_t>(rows.size()); }
};

struct Routing {
  Routing(const spec::Config& config, const spec::Plan& plan);

  /// Index in `served` of the slots that every rank serves from its own replica.
  [[nodiscard]] std::int64_t replicated() const { return ranks; }

  [[nodiscard]] const Slot& slot(const SlotAddress& address) const {
    return served[static_cast<std::size_t>(address.server)][static_cast<std::size_t>(address.slot)];
  }

  /// Whether `rank` serves the slot for itself and takes whole bags: then nothing of it travels,
  /// ids are read and vectors written where the batch and the matrices have them.
  [[nodiscard]] bool in_place(const SlotAddress& address, std::int64_t rank) const {
    const Slot& asked = slot(address);
    return (address.server == rank || address.server == replicated()) && !asked.of_rows() &&
           !features[static_cast<std::size_t>(asked.feature)].split();
  }

  /// The maximal whole subtrees of the rank's parts.
  [[nodiscard]] std::vector<Range> nodes(std::int64_t rank) const {
    return maximal_subtrees(parts, rank_parts(parts, ranks, rank));
  }

  std::int64_t ranks = 1;
  std::int64_t parts = 1;
  std::int64_t pooled_columns = 0;        ///< width of the pooled output
  std::vector<FeatureRoute> features;     ///< [F], as configured
  std::vector<RowFetch> fetches;          ///< fetched tables that some feature reads
  std::vector<std::vector<Slot>> served;  ///< [W + 1], ordered by feature, then shard; then rows

 private:
  void add_slots(const spec::TablePlan& plan, std::int64_t feature);
  void add_fetched(const spec::Config& config, const spec::Plan& plan);
};

}  // namespace weft::sharding
