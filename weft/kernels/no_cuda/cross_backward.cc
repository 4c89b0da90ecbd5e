#include "weft/kernels/cross.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void cross_backward(Context& /*ctx*/, const CrossBackward& /*args*/) {
  missing_operation("cross_backward");
}

}  // namespace weft::kernels::cuda
