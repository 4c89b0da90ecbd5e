#include "weft/kernels/interaction.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void dot_interaction_forward(Context& /*ctx*/, const DotForward& /*args*/) {
  missing_operation("dot_interaction_forward");
}

}  // namespace weft::kernels::cuda
