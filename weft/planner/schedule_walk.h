/// What a step takes under a schedule: the schedule is walked (weft/pipeline/schedule.h) with
/// predicted seconds of its stages, over clocks instead of streams. Which stage waits for which is
/// what a Lineup waits for: the same declarations (weft/pipeline/stage.h), the same rule.
///
/// Clocks
///   stream     of every rank and role. The compute stream is the thread that issues: no stage
///              begins before it was issued. Without train.overlap all stages are on it.
///   link       one, which all exchanges share, inside hosts and across them: two streams on one
///              link gain no bandwidth. Exchanges take its idle time in the order of issue.
///   processor  one per rank, which the stages of all its streams share, whatever the number of
///              threads: each takes its seconds with all of them. A stage takes idle time in the
///              order of issue, in pieces, so nothing is computed for free.
///   behind     the dense all-reduce and averages of replicas take what time of the link others
///              leave: what is issued before their result is needed comes first.
///
///   disk       one per rank: `fetch` ends when both its work and its reads have, which begin
///              together, and the disk has one user at a time too.
///
/// A stage of several ranks is work, then its exchange, then work: of counts all work is before it,
/// of the others all behind. An exchange begins when all ranks are there, but for that of row
/// updates and averages, in which nobody waits. A micro-batch has its share of a stage's work and
/// of an exchange's bytes, and what no byte takes in full. Weights' gradients fill waits,
/// where a rank would wait for vectors. Every stage has a hand-off, but for
/// fetch where all rows are in memory, and the all-reduce.
///
/// Of schedule sync a step is that of PlanCost::step_s, but where the all-reduce is what is waited
/// for: here the dense update comes after it, and up to four hand-offs run beside it. And averages
/// of replicas are hidden by the next step's counts and ids. Of many ranks those are walked that
/// are slowest in a part, or in parts between two exchanges of sync.
///
/// Pure functions. Cost: O(steps · stages · ranks walked), about a millisecond.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/step_part.h"
#include "weft/pipeline/schedule.h"
#include "weft/planner/plan_cost.h"
#include "weft/planner/step_shape.h"

namespace weft::planner {

/// Which streams there are beside the compute stream.
enum class Streams : std::uint8_t {
  kOne,   ///< none
  kMany,  ///< those of the schedule, of the dense all-reduce and of averages
};

/// Seconds of the stages of a step with whole batches, by StepPart.
struct StageSeconds {
  std::vector<std::array<double, kStepParts>> own;  ///< [ranks] work
  std::array<double, kStepParts> exchanges{};
  std::array<double, kStepParts> starts{};  ///< of these what no byte takes
  std::vector<double> reads =
      {};                 ///< [ranks] of the disk in a fetch; empty: all rows are in memory
  double hand_off = 0.0;  ///< of a stage
  double join = 0.0;      ///< of weights' gradients of micro-batches that are summed apart
  /// Whether weights' gradients fill waits: where compute runs on the thread that issues.
  bool fills_waits = true;
  Streams streams = Streams::kMany;
  std::int64_t average_every = 0;  ///< steps of an average, whose seconds are whole; 0: none
};

/// Of the slowest ranks of a step that is predicted. REQUIRES: `cost` is of `shape`.
StageSeconds stage_seconds(const StepShape& shape, const PlanCost& cost);

/// How a batch is cut, of a schedule that does so.
struct WalkCuts {
  std::vector<double> shares = {1.0};  ///< of each micro-batch in the batch; together 1
  std::int64_t lookahead = 1;
};

/// Returns the seconds of a step under the schedule, once it goes on like that; the mean over steps
/// with and without averages. REQUIRES: one share unless the schedule cuts batches.
double walked_step_s(const StageSeconds& seconds,
                     const pipeline::Schedule& schedule,
                     const WalkCuts& cuts = {});

}  // namespace weft::planner
