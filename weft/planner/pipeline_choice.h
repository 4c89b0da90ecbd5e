/// Which schedule a plan should have (weft/pipeline/schedule.h), and what a step takes under each.
///
/// Every schedule is walked with the predicted stages of the plan (schedule_walk.h); of those that
/// cut batches, with 2, 4 and 8 micro-batches of equal size where every rank has as many parts, and
/// the fastest counts. Of equally fast ones the simpler: another than sync is chosen where it is
/// predicted to be faster by kLeastGain, and fits into memory. Of a configuration that says a
/// schedule, that one is walked as it says.
///
/// Pure functions. Cost: a few milliseconds, and a step_memory() per schedule.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "weft/planner/estimate.h"
#include "weft/planner/plan_cost.h"
#include "weft/spec/config.h"
#include "weft/spec/pipeline.h"
#include "weft/spec/plan.h"

namespace weft::planner {

/// Of a step of schedule sync, that another one must save.
inline constexpr double kLeastGain = 0.02;

/// A schedule, predicted.
struct PipelineOption {
  spec::Pipeline pipeline = {};  ///< never kAuto
  double step_s = 0.0;
  double memory_bytes = 0.0;  ///< of the rank with most
  bool fits = true;

  friend bool operator==(const PipelineOption&, const PipelineOption&) = default;
};

/// How many batches have memory under a schedule; kAuto: one.
std::int64_t batches_in_flight(const spec::Pipeline& pipeline);

/// Returns [ranks] the bytes of memory that a rank has under a schedule. `cost`: of the plan, by
/// the same estimator.
std::vector<double> rank_bytes(const Estimator& estimator,
                               const spec::Plan& plan,
                               const PlanCost& cost,
                               const spec::Pipeline& pipeline);

/// Returns what a step takes under a schedule where disks take no time. `cost` is of `shape`.
double step_without_reads_s(const StepShape& shape,
                            const PlanCost& cost,
                            const spec::Pipeline& pipeline);

/// Returns all schedules, in the order of pipeline::schedules(), as if each fitted, without memory.
/// `cost` is of `shape`. Cost: milliseconds, whatever the number of ranks.
std::vector<PipelineOption> walked_options(const StepShape& shape, const PlanCost& cost);

/// Returns the same with the memory of each, and whether it fits. `cost`: of the plan, by the same
/// estimator.
std::vector<PipelineOption> pipeline_options(const Estimator& estimator,
                                             const spec::Plan& plan,
                                             const PlanCost& cost);

/// Returns the place of what a job with `asked` gets: the schedule that it says, or the best.
/// REQUIRES: `options` are those of pipeline_options(), or of walked_options().
std::size_t choose_pipeline(const spec::Pipeline& asked,
                            const std::vector<PipelineOption>& options);

}  // namespace weft::planner
