#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_moves.h"

void weft::kernels::cuda::unpack_rows(Context& /*ctx*/, std::span<const RowMove> /*jobs*/) {
  missing_operation("unpack_rows");
}
