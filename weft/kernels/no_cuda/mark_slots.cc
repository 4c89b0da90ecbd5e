#include "weft/kernels/cache_slots.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::mark_slots(Context& /*ctx*/, std::span<const CacheMark> /*jobs*/) {
  missing_operation("mark_slots");
}
