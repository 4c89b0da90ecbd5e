/// Private to comm/: what holds while a collective is called.
#pragma once

#include <atomic>
#include <string>

#include "weft/base/error.h"
#include "weft/tensor/device.h"

namespace weft::comm {

/// Guards one call: one thread at a time, memory that the host can read.
class CallGuard {
 public:
  CallGuard(std::atomic<bool>& busy, const std::string& group, const Context& ctx) : busy_(busy) {
    if (busy_.exchange(true)) {
      fail(ErrorCode::kInternal,
           "two threads use communicator '{}' at once; duplicate() it, one per stream", group);
    }
    if (ctx.device != nullptr && ctx.device->kind() == DeviceKind::kCuda) {
      busy_.store(false);
      fail(ErrorCode::kUsage,
           "communicator '{}' moves host memory and was called on a CUDA device; copy to host "
           "memory first",
           group);
    }
  }

  ~CallGuard() { busy_.store(false); }

  CallGuard(const CallGuard&) = delete;
  CallGuard& operator=(const CallGuard&) = delete;

 private:
  std::atomic<bool>& busy_;
};

}  // namespace weft::comm
