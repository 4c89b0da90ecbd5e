/// Devices: where memory lies and where stages run.
///
/// cpu    host memory; a stream is a worker thread or, for a schedule with one stream, the caller.
/// check  the CPU's kernels with an address space of its own: fresh memory is filled with NaN,
///        host access outside a stage is poisoned under AddressSanitizer, and streams wait a
///        random time before each stage. Code that forgets a copy, an event, or that a buffer is
///        still in use fails on it without a GPU.
/// cuda   a GPU; a stub that says so where Weft was built without CUDA.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "weft/layout/blocks.h"

namespace weft {

class ThreadPool;
class Stream;

namespace trace {
class Recorder;
class Track;
}  // namespace trace

/// Kinds of devices, as described above.
enum class DeviceKind : std::uint8_t { kCpu, kCheck, kCuda };

DeviceKind device_kind_from_string(std::string_view name);  ///< throws Error(kConfig)
/// Returns the name in configurations: "cpu", "check", "cuda".
std::string_view to_string(DeviceKind kind);

class Device;

/// The unit in which reserved addresses become memory, in bytes.
inline constexpr std::int64_t kReservedUnit = layout::kHugePage;

/// What a stage runs with. On CPU devices a kernel called with it has finished when it returns;
/// on CUDA it has been enqueued on `native_stream`.
struct Context {
  Device* device = nullptr;
  ThreadPool* pool = nullptr;
  void* native_stream = nullptr;
  trace::Track* track = nullptr;  ///< of the stream; null where nothing is traced
};

/// Options of Device::make_stream.
struct StreamOptions {
  std::string name;        ///< as in messages and traces
  bool is_inline = false;  ///< run stages on the caller's thread (CPU only)
  /// Gets a track of the stream's name, for what its stages record and its waits (CPU only); may be
  /// null. Outlives the stream.
  trace::Recorder* recorder = nullptr;
};

/// One rank's access to a device. It outlives its streams and all memory that it gave.
class Device {
 public:
  virtual ~Device() = default;

  /// Says which kind of device it is.
  [[nodiscard]] virtual DeviceKind kind() const = 0;

  /// The pool of the rank this device object belongs to.
  [[nodiscard]] virtual ThreadPool& pool() = 0;

  /// At least 64-byte aligned; 2 MiB-aligned with huge pages advised from 2 MiB on.
  /// Throws Error(kResource) naming the size.
  virtual void* allocate(std::int64_t bytes) = 0;
  virtual void deallocate(void* data, std::int64_t bytes) noexcept = 0;

  /// Returns addresses for memory that grows where it lies: none of it may be touched before
  /// commit(). Takes no memory. Throws Error(kResource) where the system or the device has none.
  virtual void* reserve(std::int64_t bytes);

  /// Makes bytes of a reservation memory, which is not initialised: from a multiple of
  /// kReservedUnit on, a multiple of it long. Throws Error(kResource) naming the size.
  virtual void commit(void* data, std::int64_t bytes);

  /// Gives a reservation back, of which the first `committed` bytes were memory.
  virtual void unreserve(void* data, std::int64_t bytes, std::int64_t committed) noexcept;

  /// Bytes taken and not given back, with what is mapped around them, now and at most since the
  /// device was made; 0 where nobody counts (all but the CPU). From any thread.
  [[nodiscard]] virtual std::int64_t memory_use() const { return 0; }

  [[nodiscard]] virtual std::int64_t memory_peak() const { return 0; }

  /// The part of its capacity that a buffer of this device grows by at least.
  [[nodiscard]] virtual double buffer_growth() const { return layout::kBufferGrowth; }

  /// Copies between host memory and this device, or inside it; ordered with the context's stream.
  /// With a context that no stream gave (no native_stream) they are done when they return.
  virtual void copy_to_device(Context& ctx, void* device, const void* host, std::int64_t bytes) = 0;
  virtual void copy_to_host(Context& ctx, void* host, const void* device, std::int64_t bytes) = 0;
  virtual void copy(Context& ctx, void* to, const void* from, std::int64_t bytes) = 0;
  virtual void fill_zero(Context& ctx, void* data, std::int64_t bytes) = 0;

  /// Makes a stream. Throws Error(kResource) where its thread cannot be started.
  virtual std::unique_ptr<Stream> make_stream(const StreamOptions& options) = 0;
};

/// Options of make_device.
struct DeviceOptions {
  DeviceKind kind = DeviceKind::kCpu;
  int threads = 1;               ///< of the rank's pool
  std::uint64_t check_seed = 1;  ///< of the check device's delays
  int check_max_delay_us = 200;  ///< longest delay before a stage on the check device
  int gpu = 0;                   ///< which GPU of the process, for kCuda
  double buffer_growth = layout::kBufferGrowth;  ///< see Device::buffer_growth() (CPU only)
};

/// A device object for one rank. Throws Error(kConfig) when the kind is not in this build.
std::unique_ptr<Device> make_device(const DeviceOptions& options);

}  // namespace weft
