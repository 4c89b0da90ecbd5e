/// How batches overlap: the schedule of a job, and into how many micro-batches a batch is cut. It
/// decides what may run at the same time and no bit of a result (weft/pipeline/schedule.h,
/// docs/pipeline.md).
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "weft/base/micro_batches.h"

namespace weft::spec {

/// Orders in which the stages of batches are issued. kAuto is the plan's, which a search for a
/// cluster chooses, else kSync.
enum class PipelineSchedule { kAuto, kSync, kPrefetch, kDbp, kFwp, kNested };

/// Whether a schedule cuts batches into micro-batches.
constexpr bool cuts_batches(PipelineSchedule schedule) {
  return schedule == PipelineSchedule::kFwp || schedule == PipelineSchedule::kNested;
}

/// Relative sizes of the micro-batches of a batch, all positive. In YAML a list, or, where they are
/// equal, their number.
struct CutSizes {
  std::vector<std::int64_t> sizes = {1};

  friend bool operator==(const CutSizes&, const CutSizes&) = default;
};

/// The most micro-batches that a batch is cut into, and the largest of their relative sizes.
inline constexpr std::int64_t kMostCuts = 1024;

/// Of a job. Jobs know it resolved (pipeline_of() in plan.h): nothing is left to the planner then.
struct Pipeline {
  PipelineSchedule schedule = PipelineSchedule::kAuto;
  CutSizes micro_batches = {{1, 1, 1, 1}};  ///< read by schedules that cut batches
  std::int64_t lookahead = 3;               ///< micro-batches whose vectors are on their way ahead

  /// The cuts of a batch: one, unless the schedule makes more.
  [[nodiscard]] MicroBatches cuts() const {
    return cuts_batches(schedule) ? MicroBatches(micro_batches.sizes) : MicroBatches();
  }

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

/// As in YAML: "nested".
std::string_view to_string(PipelineSchedule schedule);

}  // namespace weft::spec
