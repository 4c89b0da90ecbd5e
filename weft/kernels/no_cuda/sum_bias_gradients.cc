#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels::cuda {

void sum_bias_gradients(Context& /*ctx*/, const BiasGradients& /*args*/) {
  missing_operation("sum_bias_gradients");
}

}  // namespace weft::kernels::cuda
