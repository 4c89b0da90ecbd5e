#include "weft/kernels/elementwise.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void split(Context& /*ctx*/, const Split& /*args*/) {
  missing_operation("split");
}

}  // namespace weft::kernels::cuda
