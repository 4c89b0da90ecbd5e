#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sparse_update.h"

void weft::kernels::cuda::row_block_squares(Context& /*ctx*/,
                                            std::span<const RowSquares> /*jobs*/) {
  missing_operation("row_block_squares");
}
