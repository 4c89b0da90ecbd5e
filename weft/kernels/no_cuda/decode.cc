#include "weft/kernels/codec.h"
#include "weft/kernels/no_cuda/missing.h"

void weft::kernels::cuda::decode(Context& /*ctx*/, std::span<const DecodeJob> /*jobs*/) {
  missing_operation("decode");
}
