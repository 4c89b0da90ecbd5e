#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels::cuda {

std::vector<GradientTile> gradient_tiles(Context& /*ctx*/,
                                         std::int64_t /*rows*/,
                                         std::int64_t /*cols*/) {
  missing_operation("gradient_tiles");
}

}  // namespace weft::kernels::cuda
