#include "weft/kernels/embedding_bag.h"

#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::embedding_bag(Context& /*ctx*/, std::span<const BagLookup> /*lookups*/) {
  missing_operation("embedding_bag");
}
