#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sparse_update.h"

void weft::kernels::cuda::store_scaled_rows(Context& /*ctx*/,
                                            std::span<const StatisticUpdate> /*jobs*/) {
  missing_operation("store_scaled_rows");
}
