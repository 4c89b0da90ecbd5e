#include "weft/kernels/interaction.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void dot_interaction_backward(Context& /*ctx*/, const DotBackward& /*args*/) {
  missing_operation("dot_interaction_backward");
}

}  // namespace weft::kernels::cuda
