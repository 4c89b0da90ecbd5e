#include "weft/kernels/linear.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

std::unique_ptr<PreparedWeights> make_prepared_weights(Context& /*ctx*/,
                                                       DType /*dtype*/,
                                                       std::span<const LinearShape> /*layers*/) {
  missing_operation("make_prepared_weights");
}

}  // namespace weft::kernels::cuda
