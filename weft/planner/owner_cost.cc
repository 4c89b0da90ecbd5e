#include "weft/planner/owner_cost.h"

#include "weft/cost/tables.h"
#include "weft/layout/row_gradients.h"

namespace weft::planner {

using layout::Expected;

double owner_s(const StepShape& shape, const cost::SummedTable& table, double ranks) {
  const cost::ShardWork own{.rows = static_cast<double>(table.rows) / ranks,
                            .ids = table.partials,
                            .unique = table.touched / ranks,
                            .bags = table.partials,
                            .cold = 1.0,
                            .pooled = true,
                            .mixed = true};
  return cost::coalesce_s(shape.cluster, table.rows, own) +
         cost::gradients_s(shape.cluster, table.cols, own);
}

double owner_memory(const cost::SummedTable& table, double ranks, Transport transport) {
  const Expected partials{table.partials, true};
  const Expected sums{table.touched / ranks, true};
  double bytes = layout::held_bytes(layout::run_lengths(partials, Expected{})) +
                 layout::held_bytes(layout::vectors(sums, table.cols)) +
                 layout::held_bytes(layout::bag_offsets(sums));
  if (transport == Transport::kReceived) {
    const double others = 1.0 - 1.0 / ranks;
    bytes += others * (table.partials * cost::partial_row_bytes(table.cols) +
                       table.touched * cost::summed_row_bytes(table.cols));
  }
  return bytes;
}

}  // namespace weft::planner
