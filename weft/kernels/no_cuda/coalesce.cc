#include "weft/kernels/coalesce.h"

#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::coalesce(Context& /*ctx*/, std::span<const CoalesceJob> /*jobs*/) {
  missing_operation("coalesce");
}
