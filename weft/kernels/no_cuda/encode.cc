#include "weft/kernels/codec.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::encode(Context& /*ctx*/, std::span<const EncodeJob> /*jobs*/) {
  missing_operation("encode");
}
