#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_changes.h"

void weft::kernels::cuda::encode_row_changes(Context& /*ctx*/,
                                             std::span<const RowChanges> /*jobs*/) {
  missing_operation("encode_row_changes");
}
