#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels::cuda {

void attention_inputs(Context& /*ctx*/, const AttentionInputs& /*args*/) {
  missing_operation("attention_inputs");
}

}  // namespace weft::kernels::cuda
