/// Private to kernels/cpu: what dense operations keep from call to call.
#pragma once

#include "weft/kernels/cpu/matmul.h"
#include "weft/kernels/cpu/weight_gradient.h"
#include "weft/kernels/workspace.h"
#include "weft/tensor/host_block.h"

namespace weft::kernels {

class CpuWorkspace final : public Workspace {
 public:
  /// The workspace of an operation's arguments, which make_workspace() made.
  static CpuWorkspace& of(Workspace* workspace) {
    WEFT_CHECK(workspace != nullptr, "an operation without a workspace");
    return static_cast<CpuWorkspace&>(*workspace);
  }

  Matmul matmul;
  GradientSummer summer;
  HostBlock bias_sums;
};

}  // namespace weft::kernels
