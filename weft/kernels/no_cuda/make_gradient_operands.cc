#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/weight_gradient.h"

namespace weft::kernels::cuda {

std::unique_ptr<GradientOperands> make_gradient_operands(Context& /*ctx*/) {
  missing_operation("make_gradient_operands");
}

}  // namespace weft::kernels::cuda
