#include "weft/kernels/cache_slots.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::clear_cache(Context& /*ctx*/, std::span<const CacheClear> /*jobs*/) {
  missing_operation("clear_cache");
}
