/// Private to planner/: what caches spare a rank of the rows and vectors that it moves.
#pragma once

#include "weft/planner/step_shape.h"
#include "weft/planner/workload.h"

namespace weft::planner {

/// Share of `ids` ids of a rank that find their row, of `row_bytes`, in a cache. O(segments).
double near_share(const StepShape& shape, const FeatureUse& use, double ids, double row_bytes);

/// Seconds of vectors or gradients moved between matrices, of which caches hold what is not cold.
double matrix_s(const StepShape& shape, double bytes);

}  // namespace weft::planner
