#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_changes.h"

void weft::kernels::cuda::average_row_changes(Context& /*ctx*/,
                                              std::span<const ChangeAverage> /*jobs*/) {
  missing_operation("average_row_changes");
}
