#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_copies.h"

void weft::kernels::cuda::copy_from_rows(Context& /*ctx*/, std::span<const RowCopy> /*jobs*/) {
  missing_operation("copy_from_rows");
}
