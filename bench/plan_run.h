/// Runs the cases of plan_cases.h and measures them.
///
/// Calibration and cases take turns, round after round, as a shared machine's speed changes by the
/// minute; no case is used to fit anything. Of a step and of each of its parts the lower decile of
/// a round's steps counts: others can only slow down. Of a part that is an exchange the rank that
/// was in it for the shortest time counts, since the others wait in theirs; of the other parts the
/// slowest rank. A step is from begin to begin. Batches are drawn from the law that predictions
/// assume and held in memory, so this says nothing of guesses about data.
#pragma once

#include <vector>

#include "bench/plan_record.h"

namespace weft::bench {

struct PlanRunOptions {
  int rounds = 5;
  double turn_s = 0.6;  ///< about how long a case runs in a round
  bool quick = false;
};

/// By shape: ranks x threads of this process, or of the MPI job it belongs to; then empty on other
/// processes than the first.
std::vector<ShapeFigures> measure_plans(const PlanRunOptions& options);

}  // namespace weft::bench
