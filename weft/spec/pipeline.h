/// How batches overlap: the schedule of a job, and into how many micro-batches a batch is cut. That
/// decides what may run at the same time and no bit of a result (weft/pipeline/schedule.h,
/// docs/pipeline.md). And which samples are in the same part, which decides bits.
///
/// Notation   P parts, W ranks, c parts of a clustering run: [kc, min((k + 1)c, P)).
#pragma once

#include <cstdint>
#include <string>
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
  /// c: training samples are permuted inside aligned runs of so many parts, so that those which
  /// read the same rows are in the same part (weft/data/cluster.h); 0 = off. The job's, never the
  /// plan's.
  std::int64_t cluster_parts = 0;

  /// The cuts of a batch: one, unless the schedule makes more.
  [[nodiscard]] MicroBatches cuts() const {
    return cuts_batches(schedule) ? MicroBatches(micro_batches.sizes) : MicroBatches();
  }

  friend bool operator==(const Pipeline&, const Pipeline&) = default;
};

/// As in YAML: "nested".
std::string_view to_string(PipelineSchedule schedule);

/// Throws Error(kConfig), naming the first rank whose parts begin inside a clustering run and the
/// next values of pipeline.cluster_parts and numerics.parts that work, unless every run is of one
/// rank. REQUIRES: 1 <= ranks <= parts. O(W), nothing where clustering is off.
void check_cluster_parts(const Pipeline& pipeline, std::int64_t parts, std::int64_t ranks);

/// For people: "dbp", "nested, 4 micro-batches, 3 ahead", "fwp, micro-batches [1, 2, 1], 1 ahead".
std::string describe(const Pipeline& pipeline);

}  // namespace weft::spec
