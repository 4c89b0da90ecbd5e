#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sparse_update.h"

void weft::kernels::cuda::gradient_block_squares(Context& /*ctx*/,
                                                 std::span<const BlockSquares> /*jobs*/) {
  missing_operation("gradient_block_squares");
}
