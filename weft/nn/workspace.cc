#include "weft/nn/workspace.h"

namespace weft::nn {

kernels::Operand SliceWorkspace::get(std::size_t slot,
                                     DType dtype,
                                     std::int64_t rows,
                                     std::int64_t cols) {
  if (dtype == DType::kFloat32) {
    return get<float>(slot, rows, cols);
  }
  return get<BFloat16>(slot, rows, cols);
}

}  // namespace weft::nn
