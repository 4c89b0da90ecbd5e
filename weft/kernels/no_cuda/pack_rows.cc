#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_moves.h"

void weft::kernels::cuda::pack_rows(Context& /*ctx*/, std::span<const RowMove> /*jobs*/) {
  missing_operation("pack_rows");
}
