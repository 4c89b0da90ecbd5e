#include "weft/kernels/elementwise.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void assign(Context& /*ctx*/, const Assign& /*args*/) {
  missing_operation("assign");
}

}  // namespace weft::kernels::cuda
