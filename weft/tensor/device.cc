#include "weft/tensor/device.h"

#include <array>
#include <string>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/tensor/devices.h"

namespace weft {

DeviceKind device_kind_from_string(std::string_view name) {
  for (const DeviceKind kind : {DeviceKind::kCpu, DeviceKind::kCheck, DeviceKind::kCuda}) {
    if (to_string(kind) == name) {
      return kind;
    }
  }
  const std::array<std::string, 3> known = {"cpu", "check", "cuda"};
  fail(ErrorCode::kConfig, "unknown device '{}': {}", name, suggestion(name, known));
}

std::string_view to_string(DeviceKind kind) {
  switch (kind) {
    case DeviceKind::kCpu:
      return "cpu";
    case DeviceKind::kCheck:
      return "check";
    case DeviceKind::kCuda:
      return "cuda";
  }
  return "unknown";
}

void* Device::reserve(std::int64_t bytes) {
  fail(
      ErrorCode::kResource,
      "a {} device cannot reserve {} of memory that grows; set memory.tier to dense or ssd for its "
      "tables",
      to_string(kind()), format_bytes(static_cast<std::uint64_t>(bytes)));
}

void Device::commit(void* /*data*/, std::int64_t bytes) {
  WEFT_CHECK(false, "{} bytes of a reservation that this device does not make", bytes);
}

void Device::unreserve(void* /*data*/,
                       std::int64_t /*bytes*/,
                       std::int64_t /*committed*/) noexcept {
}

std::unique_ptr<Device> make_device(const DeviceOptions& options) {
  if (options.threads < 1) {
    fail(ErrorCode::kConfig, "a device with {} threads: at least 1 is needed", options.threads);
  }
  switch (options.kind) {
    case DeviceKind::kCpu:
      return make_cpu_device(options);
    case DeviceKind::kCheck:
      return make_check_device(options);
    case DeviceKind::kCuda:
      return make_cuda_device(options);
  }
  fail(ErrorCode::kInternal, "device kind number {} does not exist",
       static_cast<int>(options.kind));
}

}  // namespace weft
