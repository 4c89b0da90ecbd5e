#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sparse_update.h"

void weft::kernels::cuda::update_rows_with_statistic(Context& /*ctx*/,
                                                     std::span<const StatisticUpdate> /*jobs*/) {
  missing_operation("update_rows_with_statistic");
}
