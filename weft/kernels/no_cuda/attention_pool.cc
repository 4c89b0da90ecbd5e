#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sequence.h"

namespace weft::kernels::cuda {

void attention_pool(Context& /*ctx*/, const AttentionPool& /*args*/) {
  missing_operation("attention_pool");
}

}  // namespace weft::kernels::cuda
