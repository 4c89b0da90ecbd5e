// This header has what the parity lists share. A list runs cases on a device: their inputs are
// copied into its memory, the operation runs there, what it wrote is copied back and compared with
// what the plain loops make of host memory. Any backend can be given to it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/sparse_cases.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/device.h"
#include "weft/tensor/stream.h"

namespace weft::kernels::test {

/// Host memory for the plain loops, and a copy of it on a device.
template <typename T>
class Copied {
 public:
  Copied() = default;

  explicit Copied(std::vector<T> values) : host_(std::move(values)) {}

  [[nodiscard]] T* host() { return host_.data(); }

  [[nodiscard]] const std::vector<T>& values() const { return host_; }

  [[nodiscard]] std::int64_t bytes() const {
    return static_cast<std::int64_t>(host_.size() * sizeof(T));
  }

  /// The device's memory, with the values of now.
  T* place(Context& ctx) {
    device_ = Buffer(*ctx.device, bytes());
    ctx.device->copy_to_device(ctx, device_.as<void>(), host_.data(), bytes());
    return device_.as<T>();
  }

  /// Where place() has put them.
  [[nodiscard]] T* placed() const { return device_.as<T>(); }

  /// Returns whether the device has the bits of the host.
  [[nodiscard]] bool same_bits(Context& ctx) const {
    std::vector<T> got(host_.size());
    ctx.device->copy_to_host(ctx, got.data(), device_.as<void>(), bytes());
    return bytes() == 0 || std::memcmp(got.data(), host_.data(), host_.size() * sizeof(T)) == 0;
  }

 private:
  std::vector<T> host_;
  Buffer device_;
};

/// Runs `body` as a stage on a stream of the device, and waits for it.
inline void run_on(Device& device, const std::function<void(Context&)>& body) {
  const std::unique_ptr<Stream> stream = device.make_stream({.name = "cases", .is_inline = true});
  const Stage stage = [&](Context& ctx) { body(ctx); };
  stream->enqueue(stage);
  stream->synchronize();
}

/// A list on the check device, whose fresh memory is no number: what an operation reads before it
/// was written shows.
inline void on_check_device(const std::function<void(Device&)>& list) {
  SCOPED_TRACE("check device");
  list(*make_device({.kind = DeviceKind::kCheck, .threads = 2}));
}

/// A list on the CPU, for every target, with one thread and with several, and on the check device.
inline void on_every_target(const std::function<void(Device&)>& list) {
  for (const std::int64_t target : targets()) {
    const OnTarget on(target);
    for (const int threads : {1, 3}) {
      SCOPED_TRACE(std::string(hwy::TargetName(target)) + ", threads " + std::to_string(threads));
      list(*make_device({.threads = threads}));
    }
  }
  on_check_device(list);
}

}  // namespace weft::kernels::test
