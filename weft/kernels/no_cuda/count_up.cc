#include "weft/kernels/coalesce.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::count_up(Context& /*ctx*/, std::span<const CountUp> /*jobs*/) {
  missing_operation("count_up");
}
