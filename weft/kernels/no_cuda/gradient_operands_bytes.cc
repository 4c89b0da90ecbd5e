#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels::cuda {

std::int64_t gradient_operands_bytes(Context& /*ctx*/,
                                     DType /*dtype*/,
                                     std::int64_t /*samples*/,
                                     const LinearShape& /*layer*/) {
  missing_operation("gradient_operands_bytes");
}

}  // namespace weft::kernels::cuda
