#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels::cuda {

void sequence_mean_backward(Context& /*ctx*/, const MeanBackward& /*args*/) {
  missing_operation("sequence_mean_backward");
}

}  // namespace weft::kernels::cuda
