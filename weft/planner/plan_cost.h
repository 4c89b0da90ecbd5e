/// Blocks of tables, what they cost the rank that holds them in a step, and what a plan costs:
/// values that an Estimator (estimate.h) is asked for and predicts. Seconds and bytes are of one
/// step unless they say otherwise.
/// Plain values; pure functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "weft/base/parts.h"
#include "weft/base/step_part.h"
#include "weft/cost/exchange.h"
#include "weft/spec/plan.h"

namespace weft::planner {

struct HotUse;

/// The parts of a step that are predicted. Seconds of kSyncReplicas are those of a sync over τ.
inline constexpr std::array kPredictedParts = {
    StepPart::kExchangeCounts,  StepPart::kExchangeIds, StepPart::kFetch,
    StepPart::kLookup,          StepPart::kOutputDist,  StepPart::kForwardBackward,
    StepPart::kWeightGradients, StepPart::kReduce,      StepPart::kExchangeReport,
    StepPart::kCoalesce,        StepPart::kGradDist,    StepPart::kUpdateRows,
    StepPart::kSyncReplicas,    StepPart::kUpdateDense};

/// Whether the shards of a table hold more than one cut of its rows. O(shards).
bool rows_are_cut(const spec::TablePlan& table);

/// Whether bags are added at the samples: where the plan says so and rows are cut or hot.
/// O(shards).
bool is_fetched(const spec::TablePlan& table);

/// Rows and columns of a table that one rank holds alone, among those of other ranks.
struct TableBlock {
  std::int64_t table = 0;
  RowSet rows;
  Range cols;
  std::int64_t column_shards = 1;  ///< how many blocks cut the same rows, this one included
  spec::PooledAt pooled_at = spec::PooledAt::kOwner;  ///< as in plans
  /// Null, or the table's hot rows (hot_rows.h): the block gets the tail's ids. Outlives the block.
  const HotUse* hot_use = nullptr;
};

/// A shard of a plan as a block, as if no other one cut the same rows.
TableBlock block_of(std::int64_t table,
                    const spec::Shard& shard,
                    spec::PooledAt pooled_at = spec::PooledAt::kOwner,
                    const HotUse* hot_use = nullptr);

/// What a block of a table costs the rank that holds it, per step.
struct ShardLoad {
  double lookup_s = 0.0;
  double coalesce_s = 0.0;
  double update_s = 0.0;
  double encode_s = 0.0;         ///< of vectors for other ranks
  double decode_s = 0.0;         ///< of their gradients
  double ids = 0.0;              ///< looked up
  double unique = 0.0;           ///< updated
  double asked_ids = 0.0;        ///< ids that each rank asks for here, repeated or not
  double ids_bytes = 0.0;        ///< that each rank sends here
  double vector_bytes = 0.0;     ///< that go to each rank
  double gradient_bytes = 0.0;   ///< that come back from each
  double statistic_bytes = 0.0;  ///< to all other shards of the same rows, where columns are cut
  double partials = 0.0;         ///< of copies: partial sums of row gradients for other ranks
  std::int64_t bytes = 0;        ///< of the table and its state
  // Of a mesh of several groups:
  double synced_bytes = 0.0;   ///< of rows and state that one sync averages
  double list_bytes = 0.0;     ///< of lists of touched rows, to each other group per sync
  double partial_bytes = 0.0;  ///< of row gradients to each other group per step
  double average_s = 0.0;      ///< of one sync
  double sync_memory = 0.0;    ///< bytes of lists, or of partial rows

  ShardLoad& operator+=(const ShardLoad& other);
};

/// Making a rank's rows resident: its processor and its disk work side by side.
struct FetchCost {
  double own_s = 0.0;   ///< of the processor
  double disk_s = 0.0;  ///< of the disk

  [[nodiscard]] double seconds() const { return std::max(own_s, disk_s); }
};

/// One rank's share of a step.
struct RankCost {
  std::array<double, kStepParts> seconds{};  ///< exchanges included, waiting not
  ShardLoad load;                            ///< of all its shards
  FetchCost fetch;                           ///< of those whose rows are not all in memory
  std::int64_t table_bytes = 0;
  double buffer_bytes = 0.0;  ///< of its exchanges, and what is mapped around tables
  double sample_bytes = 0.0;  ///< its samples' vectors and gradients, and the dense model's memory
  cost::ByLink sent{};        ///< bytes per step, by class of link; of several groups the mean
  /// Messages per step, likewise. Lanes on which no byte is expected are silent and have none.
  cost::ByLink messages{};
  double sync_bytes = 0.0;  ///< sent in one sync; with sync gradients in one step

  /// Between exchanges, in which ranks differ.
  [[nodiscard]] double own_s() const;

  /// Returns what has to fit beside samples and the dense model (Estimator::capacity()).
  [[nodiscard]] std::int64_t bytes() const {
    return table_bytes + static_cast<std::int64_t>(buffer_bytes);
  }
};

/// The predicted cost of a training step. Arrays go by StepPart, in seconds; of parts that are not
/// in kPredictedParts they are 0.
struct PlanCost {
  double step_s = 0.0;                         ///< of schedule sync (weft/pipeline/schedule.h)
  std::array<double, kStepParts> parts{};      ///< of the slowest rank
  std::array<double, kStepParts> exchanges{};  ///< seconds of these that are an exchange
  std::array<double, kStepParts> starts{};     ///< and of these what no byte takes
  std::array<double, kStepParts> messages{};   ///< sent by the rank with most, over its exchanges
  std::array<double, kStepParts> sent{};       ///< bytes, likewise
  double join_s = 0.0;          ///< of weights' gradients that are summed apart from the others
  std::vector<RankCost> ranks;  ///< of one group
  double sync_s = 0.0;          ///< of one sync; of sync gradients their exchange in one step

  /// Max over mean of the ranks' own seconds (of tables: lookup, coalesce, update).
  [[nodiscard]] double imbalance() const;
  [[nodiscard]] double bytes_imbalance() const;
};

}  // namespace weft::planner
