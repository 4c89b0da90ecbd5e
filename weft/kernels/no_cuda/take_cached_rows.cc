#include "weft/kernels/cache_slots.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::take_cached_rows(Context& /*ctx*/, std::span<const CacheTake> /*jobs*/) {
  missing_operation("take_cached_rows");
}
