#include "weft/kernels/linear.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void prepare_weights(Context& /*ctx*/, const PrepareWeights& /*args*/) {
  missing_operation("prepare_weights");
}

}  // namespace weft::kernels::cuda
