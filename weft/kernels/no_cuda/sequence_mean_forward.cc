#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels::cuda {

void sequence_mean_forward(Context& /*ctx*/, const MeanForward& /*args*/) {
  missing_operation("sequence_mean_forward");
}

}  // namespace weft::kernels::cuda
