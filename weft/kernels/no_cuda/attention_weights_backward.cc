#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels::cuda {

void attention_weights_backward(Context& /*ctx*/, const AttentionWeightsBackward& /*args*/) {
  missing_operation("attention_weights_backward");
}

}  // namespace weft::kernels::cuda
