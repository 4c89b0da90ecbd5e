#include "weft/kernels/linear.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void output_backward(Context& /*ctx*/, const OutputBackward& /*args*/) {
  missing_operation("output_backward");
}

}  // namespace weft::kernels::cuda
