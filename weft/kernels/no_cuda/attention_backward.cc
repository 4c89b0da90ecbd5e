#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels::cuda {

void attention_backward(Context& /*ctx*/, const AttentionBackward& /*args*/) {
  missing_operation("attention_backward");
}

}  // namespace weft::kernels::cuda
