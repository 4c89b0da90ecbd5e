#include <algorithm>
#include <cstddef>
#include <deque>
#include <exception>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <cuda_runtime.h>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/base/thread_pool.h"
#include "weft/tensor/devices.h"
#include "weft/tensor/stream.h"

namespace weft {
namespace {

void check(cudaError_t status, const char* attempt) {
  if (status != cudaSuccess) {
    fail(ErrorCode::kInternal, "CUDA: {}: {} ({})", attempt, cudaGetErrorString(status),
         cudaGetErrorName(status));
  }
}

/// A cudaStream_t. Stages run on the caller's thread and enqueue their kernels; what is ordered is
/// the GPU's work. An event is a cudaEvent_t, recorded when it is asked for and used again once the
/// GPU has passed it.
class CudaStream final : public Stream {
 public:
  CudaStream(int gpu, const Context& context, const StreamOptions& options)
      : gpu_(gpu), context_(context), name_(options.name) {
    check(cudaSetDevice(gpu_), "selecting the GPU");
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "creating a stream");
    context_.native_stream = stream_;
  }

  ~CudaStream() override {
    // What is in the queue may still use buffers that are freed next.
    cudaSetDevice(gpu_);
    cudaStreamSynchronize(stream_);
    for (const Mark& mark : marks_) {
      cudaEventDestroy(mark.event);
    }
    for (cudaEvent_t event : spare_) {
      cudaEventDestroy(event);
    }
    cudaStreamDestroy(stream_);
  }

  CudaStream(const CudaStream&) = delete;
  CudaStream& operator=(const CudaStream&) = delete;

  void enqueue(const Stage& stage) override {
    std::exception_ptr error;
    if (!failed()) {
      try {
        check(cudaSetDevice(gpu_), "selecting the GPU");
        stage(context_);
        check(cudaGetLastError(), "launching the kernels of a stage");
      } catch (...) {
        error = std::current_exception();
      }
    }
    finish(std::move(error));
  }

  [[nodiscard]] Event record() override {
    const std::lock_guard lock(mutex_);
    retire();
    if (reached_ < enqueued_ && (marks_.empty() || marks_.back().sequence < enqueued_)) {
      check(cudaSetDevice(gpu_), "selecting the GPU");
      if (spare_.empty()) {
        cudaEvent_t event = nullptr;
        // Blocking: the host sleeps while it waits.
        check(cudaEventCreateWithFlags(&event, cudaEventDisableTiming | cudaEventBlockingSync),
              "creating an event");
        spare_.push_back(event);
      }
      check(cudaEventRecord(spare_.back(), stream_), "recording an event");
      marks_.push_back({enqueued_, spare_.back()});
      spare_.pop_back();
    }
    return {this, enqueued_};
  }

  void wait(const Event& event) override {
    if (event.stream == nullptr || event.stream == this) {
      return;
    }
    std::exception_ptr error;
    try {
      if (auto* other = dynamic_cast<CudaStream*>(event.stream)) {
        error = other->make_wait(event.sequence, stream_);
      } else {
        event.stream->wait_on_host(event);  // the GPU cannot wait for a CPU stream
      }
    } catch (...) {
      error = std::current_exception();
    }
    finish(std::move(error));
  }

  void wait_on_host(const Event& event) override {
    WEFT_CHECK(event.stream == this, "stream '{}' was given the event of another stream", name_);
    cudaEvent_t native = nullptr;
    {
      const std::lock_guard lock(mutex_);
      native = find(event.sequence);
    }
    if (native != nullptr) {
      // Were it used again in between, this would wait for a later point, which is right too.
      check(cudaEventSynchronize(native), "waiting for the GPU's work");
    }
    if (std::exception_ptr error = error_before(event.sequence)) {
      std::rethrow_exception(error);
    }
  }

  [[nodiscard]] bool has_reached(const Event& event) override {
    WEFT_CHECK(event.stream == this, "stream '{}' was given the event of another stream", name_);
    const std::lock_guard lock(mutex_);
    const cudaEvent_t native = find(event.sequence);
    if (native == nullptr) {
      return true;
    }
    const cudaError_t status = cudaEventQuery(native);
    if (status == cudaErrorNotReady) {
      // "Not ready" is an answer, not an error to be found by the next check.
      static_cast<void>(cudaGetLastError());
      return false;
    }
    check(status, "asking for the GPU's progress");
    return true;
  }

  [[nodiscard]] const std::string& name() const override { return name_; }

 private:
  struct Mark {
    std::uint64_t sequence;
    cudaEvent_t event;
  };

  bool failed() {
    const std::lock_guard lock(mutex_);
    return error_ != nullptr;
  }

  std::exception_ptr error_before(std::uint64_t sequence) {
    const std::lock_guard lock(mutex_);
    return error_ && failed_at_ < sequence ? error_ : nullptr;
  }

  /// Counts an entry, and keeps the first error.
  void finish(std::exception_ptr error) {
    const std::lock_guard lock(mutex_);
    if (error && !error_) {
      error_ = std::move(error);
      failed_at_ = enqueued_;
    }
    ++enqueued_;
  }

  /// Makes `waiting` wait for this stream's event; returns the exception of an entry before it.
  std::exception_ptr make_wait(std::uint64_t sequence, cudaStream_t waiting) {
    const std::lock_guard lock(mutex_);
    if (cudaEvent_t native = find(sequence)) {
      check(cudaStreamWaitEvent(waiting, native, 0), "making a stream wait for an event");
    }
    return error_ && failed_at_ < sequence ? error_ : nullptr;
  }

  /// The mark of an event, null when the GPU has passed it. Under the mutex.
  cudaEvent_t find(std::uint64_t sequence) const {
    const auto mark = std::find_if(marks_.begin(), marks_.end(), [sequence](const Mark& each) {
      return each.sequence >= sequence;
    });
    return sequence <= reached_ || mark == marks_.end() ? nullptr : mark->event;
  }

  /// Takes back the events that the GPU has passed. Under the mutex.
  void retire() {
    while (!marks_.empty() && cudaEventQuery(marks_.front().event) == cudaSuccess) {
      reached_ = marks_.front().sequence;
      spare_.push_back(marks_.front().event);
      marks_.pop_front();
    }
    // "Not ready" is an answer, not an error to be found by the next check.
    static_cast<void>(cudaGetLastError());
  }

  int gpu_;
  Context context_;
  std::string name_;
  cudaStream_t stream_ = nullptr;
  std::mutex mutex_;
  std::deque<Mark> marks_;          ///< recorded and perhaps not reached, oldest first
  std::vector<cudaEvent_t> spare_;  ///< to be used again
  std::uint64_t enqueued_ = 0;
  std::uint64_t reached_ = 0;  ///< every entry before this one is known to be done
  std::uint64_t failed_at_ = 0;
  std::exception_ptr error_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const DeviceOptions& options) : gpu_(options.gpu), pool_(options.threads) {
    int count = 0;
    const cudaError_t status = cudaGetDeviceCount(&count);
    if (status != cudaSuccess || gpu_ < 0 || gpu_ >= count) {
      fail(
          ErrorCode::kConfig,
          "device 'cuda': GPU {} was asked for and this process sees {} ({}); check nvidia-smi and "
          "CUDA_VISIBLE_DEVICES, or use device 'cpu'",
          gpu_, count, cudaGetErrorString(status));
    }
    check(cudaSetDevice(gpu_), "selecting the GPU");
  }

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCuda; }

  [[nodiscard]] ThreadPool& pool() override { return pool_; }

  void* allocate(std::int64_t bytes) override {
    WEFT_CHECK(bytes >= 0, "memory of {} bytes", bytes);
    check(cudaSetDevice(gpu_), "selecting the GPU");
    void* data = nullptr;
    const cudaError_t status = cudaMalloc(&data, std::max<std::size_t>(1, unsigned_size(bytes)));
    if (status == cudaErrorMemoryAllocation) {
      static_cast<void>(cudaGetLastError());
      std::size_t free = 0;
      std::size_t total = 0;
      static_cast<void>(cudaMemGetInfo(&free, &total));
      fail(ErrorCode::kResource,
           "cannot allocate {} ({} bytes) on GPU {}: {} of {} are free; use fewer or smaller "
           "tables per rank, more ranks, or a smaller batch",
           format_bytes(unsigned_size(bytes)), bytes, gpu_, format_bytes(free),
           format_bytes(total));
    }
    check(status, "allocating memory");
    return data;
  }

  void deallocate(void* data, std::int64_t /*bytes*/) noexcept override {
    cudaSetDevice(gpu_);
    cudaFree(data);
  }

  void copy_to_device(Context& ctx, void* device, const void* host, std::int64_t bytes) override {
    transfer(ctx, device, host, bytes, cudaMemcpyHostToDevice);
  }

  void copy_to_host(Context& ctx, void* host, const void* device, std::int64_t bytes) override {
    transfer(ctx, host, device, bytes, cudaMemcpyDeviceToHost);
  }

  void copy(Context& ctx, void* to, const void* from, std::int64_t bytes) override {
    transfer(ctx, to, from, bytes, cudaMemcpyDeviceToDevice);
  }

  void fill_zero(Context& ctx, void* data, std::int64_t bytes) override {
    if (bytes > 0) {
      check(cudaSetDevice(gpu_), "selecting the GPU");
      check(cudaMemsetAsync(data, 0, unsigned_size(bytes), native(ctx)), "filling with zeros");
      finish_without_stream(ctx);
    }
  }

  std::unique_ptr<Stream> make_stream(const StreamOptions& options) override {
    return std::make_unique<CudaStream>(
        gpu_, Context{.device = this, .pool = &pool_, .native_stream = nullptr}, options);
  }

 private:
  static std::size_t unsigned_size(std::int64_t bytes) { return static_cast<std::size_t>(bytes); }

  static cudaStream_t native(const Context& ctx) {
    return static_cast<cudaStream_t>(ctx.native_stream);
  }

  void transfer(
      const Context& ctx, void* to, const void* from, std::int64_t bytes, cudaMemcpyKind kind) {
    if (bytes > 0) {
      check(cudaSetDevice(gpu_), "selecting the GPU");
      check(cudaMemcpyAsync(to, from, unsigned_size(bytes), kind, native(ctx)), "copying");
      finish_without_stream(ctx);
    }
  }

  /// Outside a stream there is no event to wait for, so the operation ends before the call does.
  static void finish_without_stream(const Context& ctx) {
    if (ctx.native_stream == nullptr) {
      check(cudaStreamSynchronize(nullptr), "waiting for a copy");
    }
  }

  int gpu_;
  ThreadPool pool_;
};

}  // namespace

std::unique_ptr<Device> make_cuda_device(const DeviceOptions& options) {
  return std::make_unique<CudaDevice>(options);
}

}  // namespace weft
