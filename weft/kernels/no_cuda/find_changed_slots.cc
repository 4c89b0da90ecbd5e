#include "weft/kernels/cache_slots.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::find_changed_slots(Context& /*ctx*/,
                                             std::span<const ChangedSlots> /*jobs*/) {
  missing_operation("find_changed_slots");
}
