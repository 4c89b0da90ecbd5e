#include "weft/kernels/dense_update.h"

#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void dense_update(Context& /*ctx*/, const DenseUpdate& /*args*/) {
  missing_operation("dense_update");
}

}  // namespace weft::kernels::cuda
