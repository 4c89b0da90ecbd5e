#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstring>
#include <map>
#include <mutex>
#include <thread>

#include "weft/base/error.h"
#include "weft/base/philox.h"
#include "weft/base/thread_pool.h"
#include "weft/tensor/devices.h"
#include "weft/tensor/host_memory.h"
#include "weft/tensor/worker_stream.h"

namespace weft {
namespace {

// All bits set is a NaN in every floating type, and -1 as an integer: no valid index or length.
constexpr int kGarbage = 0xFF;

/// The memory of a check device: open to access only while a stage or a copy of the device runs.
class CheckMemory {
 public:
  void* allocate(std::int64_t bytes) {
    void* const data = allocate_host(bytes);
    std::memset(data, kGarbage, static_cast<std::size_t>(bytes));
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, static_cast<std::size_t>(bytes));
    if (users_ == 0) {
      ASAN_POISON_MEMORY_REGION(data, static_cast<std::size_t>(bytes));
    }
    return data;
  }

  void deallocate(void* data, std::int64_t bytes) noexcept {
    if (data == nullptr) {
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      blocks_.erase(data);
    }
    ASAN_UNPOISON_MEMORY_REGION(data, static_cast<std::size_t>(bytes));
    std::memset(data, kGarbage, static_cast<std::size_t>(bytes));
    deallocate_host(data, bytes);
  }

  void commit(void* data, std::int64_t bytes) {
    commit_host(data, bytes);
    std::memset(data, kGarbage, static_cast<std::size_t>(bytes));
    const std::lock_guard lock(mutex_);
    blocks_.emplace(data, static_cast<std::size_t>(bytes));
    if (users_ == 0) {
      ASAN_POISON_MEMORY_REGION(data, static_cast<std::size_t>(bytes));
    }
  }

  void unreserve(void* data, std::int64_t bytes, std::int64_t committed) noexcept {
    if (data == nullptr) {
      return;
    }
    {
      const std::lock_guard lock(mutex_);
      void* const end = static_cast<std::byte*>(data) + committed;
      blocks_.erase(blocks_.lower_bound(data), blocks_.lower_bound(end));
    }
    ASAN_UNPOISON_MEMORY_REGION(data, static_cast<std::size_t>(committed));
    unreserve_host(data, bytes, committed);
  }

  void open() {
    const std::lock_guard lock(mutex_);
    if (users_++ == 0) {
      for (const auto& [data, size] : blocks_) {
        ASAN_UNPOISON_MEMORY_REGION(data, size);
      }
    }
  }

  void close() noexcept {
    const std::lock_guard lock(mutex_);
    if (--users_ == 0) {
      for (const auto& [data, size] : blocks_) {
        ASAN_POISON_MEMORY_REGION(data, size);
      }
    }
  }

 private:
  std::mutex mutex_;
  std::map<void*, std::size_t> blocks_;
  int users_ = 0;  ///< stages and copies that run now
};

class CheckDevice final : public Device, private StageObserver {
 public:
  explicit CheckDevice(const DeviceOptions& options)
      : pool_(options.threads),
        delay_key_(random_key(options.check_seed, RandomPurpose::kTest, "check device delays")),
        max_delay_us_(static_cast<std::uint32_t>(options.check_max_delay_us)) {
    WEFT_CHECK(options.check_max_delay_us >= 0, "a delay of up to {} us",
               options.check_max_delay_us);
  }

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCheck; }

  [[nodiscard]] ThreadPool& pool() override { return pool_; }

  void* allocate(std::int64_t bytes) override { return memory_.allocate(bytes); }

  void deallocate(void* data, std::int64_t bytes) noexcept override {
    memory_.deallocate(data, bytes);
  }

  void* reserve(std::int64_t bytes) override { return reserve_host(bytes); }

  void commit(void* data, std::int64_t bytes) override { memory_.commit(data, bytes); }

  void unreserve(void* data, std::int64_t bytes, std::int64_t committed) noexcept override {
    memory_.unreserve(data, bytes, committed);
  }

  void copy_to_device(Context& ctx, void* device, const void* host, std::int64_t bytes) override {
    copy(ctx, device, host, bytes);
  }

  void copy_to_host(Context& ctx, void* host, const void* device, std::int64_t bytes) override {
    copy(ctx, host, device, bytes);
  }

  void copy(Context& /*ctx*/, void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) {
      memory_.open();
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
      memory_.close();
    }
  }

  void fill_zero(Context& /*ctx*/, void* data, std::int64_t bytes) override {
    if (bytes > 0) {
      memory_.open();
      std::memset(data, 0, static_cast<std::size_t>(bytes));
      memory_.close();
    }
  }

  std::unique_ptr<Stream> make_stream(const StreamOptions& options) override {
    return make_cpu_stream({.stream = options,
                            .context = {.device = this, .pool = &pool_, .native_stream = nullptr},
                            .observer = this,
                            .number = streams_.fetch_add(1)});
  }

 private:
  /// Waits first and opens the memory then: a delay is a time in which nobody may touch it.
  void enter(std::uint64_t stream, std::uint64_t sequence) override {
    if (max_delay_us_ > 0) {
      const std::uint32_t random = philox(delay_key_, sequence, stream)[0];
      std::this_thread::sleep_for(std::chrono::microseconds(random % (max_delay_us_ + 1)));
    }
    memory_.open();
  }

  void leave() noexcept override { memory_.close(); }

  ThreadPool pool_;
  std::uint64_t delay_key_;
  std::uint32_t max_delay_us_;
  CheckMemory memory_;
  std::atomic<std::uint64_t> streams_ = 0;
};

}  // namespace

std::unique_ptr<Device> make_check_device(const DeviceOptions& options) {
  return std::make_unique<CheckDevice>(options);
}

}  // namespace weft
