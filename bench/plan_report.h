/// What comes out of plan_bench: predictions beside what was measured, errors, order.
#pragma once

#include <vector>

#include "bench/plan_record.h"
#include "bench/report.h"

namespace weft::bench {

/// Fills in what the planner expects of every case on the best of the shape's clusters.
void predict(ShapeFigures& shape);

/// Returns figures of every case: its step and, unless it compares schedules, parts and memory.
/// Then how far off predictions are, of all cases, of those that formulas were tried on and of
/// those held out, and whether predictions order alternatives as measurements do.
std::vector<Figure> figures_of(const std::vector<PlanFigures>& cases);

}  // namespace weft::bench
