/// Learning-rate schedules.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"

namespace weft::optim {

/// The factor of every learning rate in step `step`, counted from 1 (step 0 is "before training").
///
///   warm-up   step / warmup_steps while step < warmup_steps
///   constant  1
///   decay     with kPolynomial, from decay_start on: f + (1 - f) (1 - t)^power, where
///             t = min(1, (step - decay_start) / decay_steps) and f = final_factor
///
/// With kPolynomial and decay_steps = 0 the factor drops to f right after decay_start. Warm-up and
/// decay multiply where they overlap. A pure function; whole powers use multiplications only, so
/// that they have the same bits on every machine. Source: DLRM's LRPolicyScheduler.
double learning_rate_factor(const spec::Schedule& schedule, std::int64_t step);

}  // namespace weft::optim
