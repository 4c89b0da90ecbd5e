#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/base/thread_pool.h"
#include "weft/layout/blocks.h"
#include "weft/tensor/devices.h"
#include "weft/tensor/host_memory.h"
#include "weft/tensor/memory_use.h"
#include "weft/tensor/worker_stream.h"

namespace weft {
namespace {

constexpr std::size_t kAlignment = 64;  // a cache line, and a vector of AVX-512
constexpr auto kHugePage = static_cast<std::size_t>(layout::kHugePage);

constexpr std::size_t round_up(std::size_t bytes, std::size_t unit) {
  return (bytes + unit - 1) / unit * unit;
}

/// Whether memory of this size is mapped by itself. Not under AddressSanitizer, which only sees
/// past the ends of what comes from the heap.
bool is_mapped(std::size_t bytes) {
#if defined(WEFT_ADDRESS_SANITIZER)
  static_cast<void>(bytes);
  return false;
#else
  return layout::is_mapped(static_cast<std::int64_t>(bytes));
#endif
}

std::size_t mapped_bytes(std::size_t bytes) {
  return static_cast<std::size_t>(layout::mapped_bytes(static_cast<std::int64_t>(bytes)));
}

/// Maps one huge page more than needed and gives back what sticks out of the aligned part.
void* map_aligned(std::size_t bytes) {
  const std::size_t mapped = bytes + kHugePage;
  void* const raw =
      mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (raw == MAP_FAILED) {
    return nullptr;
  }
  auto* const begin = static_cast<std::byte*>(raw);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(raw) % kHugePage;
  const std::size_t before = misaligned == 0 ? 0 : kHugePage - misaligned;
  if (before > 0) {
    munmap(begin, before);
  }
  munmap(begin + before + bytes, kHugePage - before);
  // Advice only: without it a table of many GiB misses the TLB on nearly every row.
  madvise(begin + before, bytes, MADV_HUGEPAGE);
  return begin + before;
}

/// See weft/tensor/memory_use.h.
class ByteCounter {
 public:
  void add(std::int64_t bytes) {
    const std::int64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    std::int64_t peak = peak_.load(std::memory_order_relaxed);
    while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
    }
  }

  [[nodiscard]] std::int64_t now() const { return now_.load(std::memory_order_relaxed); }

  [[nodiscard]] std::int64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> now_ = 0;
  std::atomic<std::int64_t> peak_ = 0;
};

ByteCounter process_bytes;
std::atomic<std::int64_t> heap_now = 0;

/// What memory of `size` bytes counts for: all that is mapped for it.
std::int64_t counted_bytes(std::size_t size) {
  return static_cast<std::int64_t>(is_mapped(size) ? mapped_bytes(size) : size);
}

/// `sign` 1: memory of `size` bytes was taken; -1: given back.
void count_memory(std::int64_t sign, std::size_t size) {
  const std::int64_t bytes = counted_bytes(size);
  if (!is_mapped(size)) {
    heap_now.fetch_add(sign * bytes, std::memory_order_relaxed);
  }
  process_bytes.add(sign * bytes);
}

class CpuDevice final : public Device {
 public:
  explicit CpuDevice(const DeviceOptions& options)
      : pool_(options.threads), buffer_growth_(options.buffer_growth) {}

  [[nodiscard]] DeviceKind kind() const override { return DeviceKind::kCpu; }

  [[nodiscard]] ThreadPool& pool() override { return pool_; }

  void* allocate(std::int64_t bytes) override {
    void* const data = allocate_host(bytes);
    held_.add(counted_bytes(static_cast<std::size_t>(bytes)));
    return data;
  }

  void deallocate(void* data, std::int64_t bytes) noexcept override {
    deallocate_host(data, bytes);
    if (data != nullptr) {
      held_.add(-counted_bytes(static_cast<std::size_t>(bytes)));
    }
  }

  void* reserve(std::int64_t bytes) override { return reserve_host(bytes); }

  void commit(void* data, std::int64_t bytes) override {
    commit_host(data, bytes);
    held_.add(bytes);
  }

  void unreserve(void* data, std::int64_t bytes, std::int64_t committed) noexcept override {
    unreserve_host(data, bytes, committed);
    held_.add(-committed);
  }

  [[nodiscard]] std::int64_t memory_use() const override { return held_.now(); }

  [[nodiscard]] std::int64_t memory_peak() const override { return held_.peak(); }

  [[nodiscard]] double buffer_growth() const override { return buffer_growth_; }

  void copy_to_device(Context& ctx, void* device, const void* host, std::int64_t bytes) override {
    copy(ctx, device, host, bytes);
  }

  void copy_to_host(Context& ctx, void* host, const void* device, std::int64_t bytes) override {
    copy(ctx, host, device, bytes);
  }

  void copy(Context& /*ctx*/, void* to, const void* from, std::int64_t bytes) override {
    if (bytes > 0) {
      std::memcpy(to, from, static_cast<std::size_t>(bytes));
    }
  }

  void fill_zero(Context& /*ctx*/, void* data, std::int64_t bytes) override {
    if (bytes > 0) {
      std::memset(data, 0, static_cast<std::size_t>(bytes));
    }
  }

  std::unique_ptr<Stream> make_stream(const StreamOptions& options) override {
    return make_cpu_stream({.stream = options,
                            .context = {.device = this, .pool = &pool_, .native_stream = nullptr},
                            .observer = nullptr,
                            .number = streams_.fetch_add(1)});
  }

 private:
  ThreadPool pool_;
  double buffer_growth_;
  std::atomic<std::uint64_t> streams_ = 0;
  ByteCounter held_;
};

}  // namespace

void* allocate_host(std::int64_t bytes) {
  WEFT_CHECK(bytes >= 0, "memory of {} bytes", bytes);
  const auto size = static_cast<std::size_t>(bytes);
  void* data = nullptr;
  if (is_mapped(size)) {
    data = map_aligned(mapped_bytes(size));
  } else {
    const std::size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    data = std::aligned_alloc(alignment, round_up(size == 0 ? 1 : size, alignment));
  }
  if (data == nullptr) {
    fail(ErrorCode::kResource,
         "cannot allocate {} ({} bytes) of host memory; use fewer or smaller tables per rank, more "
         "ranks, or a machine with more memory",
         format_bytes(static_cast<std::uint64_t>(bytes)), bytes);
  }
  count_memory(1, size);
  return data;
}

void deallocate_host(void* data, std::int64_t bytes) noexcept {
  if (data == nullptr) {
    return;
  }
  const auto size = static_cast<std::size_t>(bytes);
  count_memory(-1, size);
  if (is_mapped(size)) {
    munmap(data, mapped_bytes(size));
  } else {
    std::free(data);
  }
}

void* reserve_host(std::int64_t bytes) {
  const std::size_t size = round_up(static_cast<std::size_t>(bytes), kHugePage) + kHugePage;
  void* const raw =
      mmap(nullptr, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (raw == MAP_FAILED) {
    fail(ErrorCode::kResource,
         "cannot reserve {} of addresses; raise the limit of the address space (ulimit -v), or "
         "spread "
         "the table over more ranks",
         format_bytes(static_cast<std::uint64_t>(bytes)));
  }
  // What lies before the first huge page is given back, and as much is left behind the last.
  auto* const begin = static_cast<std::byte*>(raw);
  const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(raw) % kHugePage;
  const std::size_t before = misaligned == 0 ? 0 : kHugePage - misaligned;
  if (before > 0) {
    munmap(begin, before);
  }
  munmap(begin + before + (size - kHugePage), kHugePage - before);
  return begin + before;
}

void commit_host(void* data, std::int64_t bytes) {
  const auto size = static_cast<std::size_t>(bytes);
  if (mprotect(data, size, PROT_READ | PROT_WRITE) != 0) {
    fail(ErrorCode::kResource,
         "cannot take {} more of host memory; use fewer or smaller tables per rank, more ranks, or "
         "a "
         "machine with more memory",
         format_bytes(static_cast<std::uint64_t>(bytes)));
  }
  madvise(data, size, MADV_HUGEPAGE);
  process_bytes.add(bytes);
}

void unreserve_host(void* data, std::int64_t bytes, std::int64_t committed) noexcept {
  if (data == nullptr) {
    return;
  }
  munmap(data, round_up(static_cast<std::size_t>(bytes), kHugePage));
  process_bytes.add(-committed);
}

MemoryUse host_memory_use() {
  return {.now = process_bytes.now(),
          .peak = process_bytes.peak(),
          .heap = heap_now.load(std::memory_order_relaxed)};
}

std::unique_ptr<Device> make_cpu_device(const DeviceOptions& options) {
  return std::make_unique<CpuDevice>(options);
}

}  // namespace weft
