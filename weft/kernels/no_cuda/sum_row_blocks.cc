#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_statistics.h"

void weft::kernels::cuda::sum_row_blocks(Context& /*ctx*/, std::span<const RowBlocks> /*jobs*/) {
  missing_operation("sum_row_blocks");
}
