/// Private to planner/: exchanges of a step under a plan: who sends how much to whom, and how long
/// that takes.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/step_part.h"
#include "weft/cost/exchange.h"
#include "weft/cost/hierarchical.h"
#include "weft/cost/row_sums.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// The statistics of rows whose columns are cut, over all tables: two exchanges, of lanes between
/// different ranks, some more than once.
struct RowStatistics {
  /// All ranks take part in an exchange where there is any, also those that send nothing.
  struct Lanes {
    bool any = false;
    std::vector<cost::LaneBytes> lanes = {};
  };

  Lanes squares;  ///< of the optimizers' statistics
  Lanes norms;    ///< of what a max_norm needs
};

/// Adds the row statistics that shards of the same rows of a table send each other: shard a of
/// `beside` bytes[a] to each of the others, of both exchanges together, which have as many.
void add_pairs(RowStatistics& statistics,
               const spec::Table& table,
               std::span<const spec::Shard> beside,
               std::span<const double> bytes);

/// Adds the exchanges of a group's tables, and those of reports, of replicas and of hot rows over
/// the world, of whose row gradients `row_sums` has the bytes. `statistics` are used up.
/// O(ranks + shards), and n log n of lanes of statistics.
void add_exchanges(const StepShape& shape,
                   PlanCost& cost,
                   const spec::Plan& plan,
                   RowStatistics& statistics,
                   const cost::RowSumBytes& row_sums);

/// Adds the sum of dense gradients, `count` floats.
void add_reduce(const StepShape& shape,
                PlanCost& cost,
                const spec::CollectiveForms& forms,
                std::int64_t count);

/// Adds `times` such exchanges of the world one after the other. What ranks at one place of their
/// groups send is, on average, what is said of the place.
void add_world_stage(const StepShape& shape,
                     PlanCost& cost,
                     StepPart part,
                     const cost::Exchange& exchange,
                     double times = 1.0);

/// Bytes of the control block of one of `ranks` ranks, or of as many groups, which goes from each
/// to each (weft/train/batch_control.h).
double control_bytes(const StepShape& shape, std::int64_t ranks);

}  // namespace weft::planner
