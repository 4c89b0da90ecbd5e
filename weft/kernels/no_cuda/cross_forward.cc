#include "weft/kernels/cross.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void cross_forward(Context& /*ctx*/, const CrossForward& /*args*/) {
  missing_operation("cross_forward");
}

}  // namespace weft::kernels::cuda
