/// Samples per second, over the run and over a window of recent time.
#pragma once

#include <chrono>
#include <cstdint>
#include <vector>

namespace weft::metrics {

/// Time is passed in (of a monotonic clock, from any origin), never read. Not thread-safe. Memory:
/// of some 70 moments, taken at the start.
class Throughput {
 public:
  using Time = std::chrono::nanoseconds;

  /// The run starts at `start`; window() looks back at least `window` where there is as much, and
  /// at most a 64th of it or one add() further.
  explicit Throughput(Time start, Time window = std::chrono::seconds(10));

  /// `samples` more were finished at `now`, which never goes back.
  void add(Time now, std::int64_t samples);

  [[nodiscard]] std::int64_t samples() const { return samples_; }

  /// Samples per second from the start to the last add(); 0 before any time has passed.
  [[nodiscard]] double lifetime() const;

  /// Samples per second over the window that ends at the last add(); 0 as above.
  [[nodiscard]] double window() const;

 private:
  struct Mark {
    Time time;
    std::int64_t samples;
  };

  Mark start_;
  Time window_;
  std::vector<Mark> marks_;  ///< the first one is where the window starts
  std::int64_t samples_ = 0;
};

}  // namespace weft::metrics
