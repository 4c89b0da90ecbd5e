/// Processor time of what stands in for the transport of messages in a benchmark.
#pragma once

#include <atomic>
#include <cstdint>
#include <ctime>

namespace weft::bench {

/// TransportTime counts what a stand-in has taken so far, of all ranks and of all their threads,
/// for callers to take off.
class TransportTime {
 public:
  /// Adds nanoseconds of a processor. From any thread.
  void add(std::int64_t ns) { ns_.fetch_add(ns, std::memory_order_relaxed); }

  /// Seconds of a processor.
  [[nodiscard]] double seconds() const { return 1e-9 * static_cast<double>(ns_.load()); }

 private:
  std::atomic<std::int64_t> ns_ = 0;
};

/// Nanoseconds that this thread has had of a processor.
inline std::int64_t thread_ns() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return now.tv_sec * 1'000'000'000 + now.tv_nsec;
}

}  // namespace weft::bench
