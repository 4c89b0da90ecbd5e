#include "weft/kernels/dense_update.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void scan_gradient(Context& /*ctx*/, const ScanGradient& /*args*/) {
  missing_operation("scan_gradient");
}

}  // namespace weft::kernels::cuda
