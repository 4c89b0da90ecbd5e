#include "weft/kernels/finite.h"
#include "weft/kernels/no_cuda/missing.h"

namespace weft::kernels::cuda {

void first_bad_sample(Context& /*ctx*/, const FirstBadSample& /*args*/) {
  missing_operation("first_bad_sample");
}

}  // namespace weft::kernels::cuda
