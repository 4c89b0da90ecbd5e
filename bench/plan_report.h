/// What comes out of plan_bench: predictions beside what was measured, errors, order.
#pragma once

#include <vector>

#include "bench/plan_record.h"
#include "bench/report.h"

namespace weft::bench {

/// Fills in what the planner expects of every case on the best of the shape's clusters.
void predict(ShapeFigures& shape);

/// Of every case of a schedule the step. Of every other case the step, its parts and its memory; of
/// all cases, of those that formulas were tried on and of those held out how far off predictions
/// are; and whether they order alternatives as measurements do.
std::vector<Figure> figures_of(const std::vector<PlanFigures>& cases);

}  // namespace weft::bench
