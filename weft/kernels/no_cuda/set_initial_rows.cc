#include "weft/kernels/initial_values.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::set_initial_rows(Context& /*ctx*/,
                                           std::span<const InitialRows> /*jobs*/) {
  missing_operation("set_initial_rows");
}
