#include "weft/base/error.h"
#include "weft/tensor/devices.h"

namespace weft {

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& /*options*/) {
  fail(ErrorCode::kConfig,
       "device 'cuda': this build of Weft has no CUDA; configure it with 'cmake --preset cuda' "
       "(needs nvcc), or use device 'cpu'");
}

}  // namespace weft
