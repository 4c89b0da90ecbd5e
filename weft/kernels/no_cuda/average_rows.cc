#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_average.h"

void weft::kernels::cuda::average_rows(Context& /*ctx*/, std::span<const RowAverage> /*jobs*/) {
  missing_operation("average_rows");
}
