#include "weft/kernels/no_cuda/missing.h"
#include "weft/kernels/workspace.h"

namespace weft::kernels::cuda {

std::unique_ptr<Workspace> make_workspace(Context& /*ctx*/) {
  missing_operation("make_workspace");
}

}  // namespace weft::kernels::cuda
