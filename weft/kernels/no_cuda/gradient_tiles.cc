#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels::cuda {

std::vector<GradientTile> gradient_tiles(Context& /*ctx*/, const LinearShape& /*layer*/) {
  missing_operation("gradient_tiles");
}

}  // namespace weft::kernels::cuda
