#include "weft/kernels/binary_sums.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void sum_binary(Context& /*ctx*/, const SumBinary& /*args*/) {
  missing_operation("sum_binary");
}

}  // namespace weft::kernels::cuda
