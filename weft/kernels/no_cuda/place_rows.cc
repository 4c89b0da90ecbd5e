#include "weft/kernels/cache_slots.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::place_rows(Context& /*ctx*/, std::span<const CachePlace> /*jobs*/) {
  missing_operation("place_rows");
}
