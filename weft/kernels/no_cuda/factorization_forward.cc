#include "weft/kernels/interaction.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void factorization_forward(Context& /*ctx*/, const FactorizationForward& /*args*/) {
  missing_operation("factorization_forward");
}

}  // namespace weft::kernels::cuda
