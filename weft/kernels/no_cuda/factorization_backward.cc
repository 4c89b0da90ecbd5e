#include "weft/kernels/interaction.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void factorization_backward(Context& /*ctx*/, const FactorizationBackward& /*args*/) {
  missing_operation("factorization_backward");
}

}  // namespace weft::kernels::cuda
