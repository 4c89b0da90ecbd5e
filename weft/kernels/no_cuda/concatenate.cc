#include "weft/kernels/elementwise.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void concatenate(Context& /*ctx*/, const Concatenate& /*args*/) {
  missing_operation("concatenate");
}

}  // namespace weft::kernels::cuda
