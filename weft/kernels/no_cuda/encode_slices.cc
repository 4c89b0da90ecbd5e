#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/slice_codes.h"

void weft::kernels::cuda::encode_slices(Context& /*ctx*/, std::span<const SliceEncode> /*jobs*/) {
  missing_operation("encode_slices");
}
