#include "weft/kernels/linear.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void linear_backward_inputs(Context& /*ctx*/, const LinearBackwardInputs& /*args*/) {
  missing_operation("linear_backward_inputs");
}

}  // namespace weft::kernels::cuda
