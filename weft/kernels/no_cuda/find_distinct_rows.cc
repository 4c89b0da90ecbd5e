#include "weft/kernels/distinct_rows.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::find_distinct_rows(Context& /*ctx*/,
                                             std::span<const DistinctJob> /*jobs*/) {
  missing_operation("find_distinct_rows");
}
