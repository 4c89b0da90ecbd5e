/// Private to kernels/: the choice of the backend that runs an operation.
#pragma once

#include "weft/tensor/device.h"

namespace weft::kernels {

/// Calls cpu() for a device whose kernels are the CPU's, cuda() for a GPU. A context without a
/// device works on host memory.
template <typename Cpu, typename Cuda>
void on_device(Context& ctx, const Cpu& cpu, const Cuda& cuda) {
  switch (ctx.device == nullptr ? DeviceKind::kCpu : ctx.device->kind()) {
    case DeviceKind::kCpu:
    case DeviceKind::kCheck:
      cpu();
      return;
    case DeviceKind::kCuda:
      cuda();
      return;
  }
}

}  // namespace weft::kernels
