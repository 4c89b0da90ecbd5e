#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_changes.h"

void weft::kernels::cuda::take_row_values(Context& /*ctx*/, std::span<const RowChanges> /*jobs*/) {
  missing_operation("take_row_values");
}
