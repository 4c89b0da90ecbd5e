/// Private to planner/: what it costs a rank to be the owner of rows whose gradients it adds up for
/// all (weft/sharding/owned_sums.h).
#pragma once

#include "weft/cost/row_sums.h"
#include "weft/planner/step_memory.h"
#include "weft/planner/step_shape.h"

namespace weft::planner {

/// Seconds to add up a rank's share of a table, 1/`ranks` of its rows: it gets as many partial sums
/// as it sends.
double owner_s(const StepShape& shape, const cost::SummedTable& table, double ranks);

/// Bytes of its buffers: partial sums and sums that have come, where they are received, entries of
/// the own share, and its sums.
double owner_memory(const cost::SummedTable& table, double ranks, Transport transport);

}  // namespace weft::planner
