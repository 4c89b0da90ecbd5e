// A device of kind cuda whose memory and streams are the CPU's, for tests of half-finished
// backends.
#pragma once

#include <cstdint>
#include <memory>

#include "weft/tensor/device.h"
#include "weft/tensor/worker_stream.h"

namespace weft::test {

/// The CPU's memory and streams under another kind: a stage gets the toy as its device.
/// `threads`: of its pool.
class ToyDevice final : public Device {
 public:
  explicit ToyDevice(int threads = 1) : cpu_(make_device({.threads = threads})) {}

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCuda; }

  [[nodiscard]] ThreadPool& pool() override { return cpu_->pool(); }

  void* allocate(std::int64_t bytes) override { return cpu_->allocate(bytes); }

  void deallocate(void* data, std::int64_t bytes) noexcept override {
    cpu_->deallocate(data, bytes);
  }

  void copy_to_device(Context& ctx, void* device, const void* host, std::int64_t bytes) override {
    cpu_->copy_to_device(ctx, device, host, bytes);
  }

  void copy_to_host(Context& ctx, void* host, const void* device, std::int64_t bytes) override {
    cpu_->copy_to_host(ctx, host, device, bytes);
  }

  void copy(Context& ctx, void* to, const void* from, std::int64_t bytes) override {
    cpu_->copy(ctx, to, from, bytes);
  }

  void fill_zero(Context& ctx, void* data, std::int64_t bytes) override {
    cpu_->fill_zero(ctx, data, bytes);
  }

  std::unique_ptr<Stream> make_stream(const StreamOptions& options) override {
    return make_cpu_stream({.stream = options,
                            .context = {.device = this, .pool = &pool(), .native_stream = nullptr},
                            .observer = nullptr,
                            .number = 0});
  }

 private:
  std::unique_ptr<Device> cpu_;
};

}  // namespace weft::test
