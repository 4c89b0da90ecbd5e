/// Private to tensor/: the devices, made by make_device().
#pragma once

#include <memory>

#include "weft/tensor/device.h"

namespace weft {

std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options);
std::unique_ptr<Device> make_check_device(const DeviceOptions& options);
std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options);

}  // namespace weft
