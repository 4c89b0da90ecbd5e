#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels::cuda {

void sum_weight_gradient(Context& /*ctx*/, const WeightGradient& /*args*/) {
  missing_operation("sum_weight_gradient");
}

}  // namespace weft::kernels::cuda
