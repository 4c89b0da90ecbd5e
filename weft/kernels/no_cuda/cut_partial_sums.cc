#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/row_gradients.h"

void weft::kernels::cuda::cut_partial_sums(Context& /*ctx*/, std::span<const PartialCut> /*jobs*/) {
  missing_operation("cut_partial_sums");
}
