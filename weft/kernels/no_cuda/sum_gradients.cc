#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_gradients.h"

void weft::kernels::cuda::sum_gradients(Context& /*ctx*/, std::span<const GradientSum> /*jobs*/) {
  missing_operation("sum_gradients");
}
