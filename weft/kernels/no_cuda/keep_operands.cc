#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels::cuda {

void keep_operands(Context& /*ctx*/, const KeepOperands& /*args*/) {
  missing_operation("keep_operands");
}

}  // namespace weft::kernels::cuda
