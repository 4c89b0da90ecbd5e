#include "weft/kernels/distinct_rows.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::slots_of_rows(Context& /*ctx*/, std::span<const RowSlots> /*jobs*/) {
  missing_operation("slots_of_rows");
}
