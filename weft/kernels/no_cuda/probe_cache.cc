#include "weft/kernels/cache_slots.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::probe_cache(Context& /*ctx*/, std::span<const CacheProbe> /*jobs*/) {
  missing_operation("probe_cache");
}
