/// From a table's optimizer, as configured, to the scalars of one step of its kernel.
#pragma once

#include <cstdint>

#include "weft/kernels/sparse_update.h"
#include "weft/spec/config.h"

namespace weft::optim {

/// Scalars are made in double and rounded once. `step` counts from 1; Adam's bias corrections use
/// it, the global step, for every row. The random key is left to the caller.
kernels::UpdateParams update_params(const spec::SparseOptimizer& optimizer,
                                    double learning_rate_factor,
                                    std::int64_t step);

/// Momentum-scaled Adagrad, row-wise or not: the optimizer whose sum m of squares is divided by `c`
/// where it is used, w = w - lr·g/(√(m/c) + eps). The replicas of M groups add up squares of their
/// own gradients, whose mean is that of the whole batch's and their variance over the groups, up to
/// M times as much; c = M takes that back. Written as other scalars of the same kernel: lr·√c,
/// eps·√c, and lr unscaled in decoupled decay; the initial accumulator is c times, so that m/c
/// begins the same. Other optimizers, and c = 1: unchanged.
/// Source: arXiv 2508.03854; as a rewrite of scalars, our own.
spec::SparseOptimizer momentum_scaled(const spec::SparseOptimizer& optimizer, double c);

/// Whether momentum_scaled() changes it.
bool has_scaled_moment(const spec::SparseOptimizer& optimizer);

/// The initial value of the optimizer's state: initial_accumulator for Adagrad's sums, else 0.
float initial_state(const spec::SparseOptimizer& optimizer);

}  // namespace weft::optim
