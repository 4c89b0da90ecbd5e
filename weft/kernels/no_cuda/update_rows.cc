#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/sparse_update.h"

void weft::kernels::cuda::update_rows(Context& /*ctx*/, std::span<const SparseUpdate> /*jobs*/) {
  missing_operation("update_rows");
}
