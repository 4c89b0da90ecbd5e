/// From a table's optimizer, as configured, to the scalars of one step of its kernel.
#pragma once

#include <cstdint>

#include "weft/kernels/sparse_update.h"
#include "weft/spec/config.h"

namespace weft::optim {

kernels::UpdateRule update_rule(spec::SparseOptimizerKind kind);

/// Scalars are made in double and rounded once. `step` counts from 1; Adam's bias corrections use
/// it, the global step, for every row. The random key is left to the caller.
kernels::UpdateParams update_params(const spec::SparseOptimizer& optimizer,
                                    double learning_rate_factor,
                                    std::int64_t step);

/// The initial value of the optimizer's state: initial_accumulator for Adagrad's sums, else 0.
float initial_state(const spec::SparseOptimizer& optimizer);

}  // namespace weft::optim
