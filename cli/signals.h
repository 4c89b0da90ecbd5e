/// Stop requests: SIGINT, SIGTERM and SIGUSR1, taken by a thread of their own.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <thread>

namespace weft::cli {

/// Blocks the three signals for the threads made after it, and waits for them on its own thread.
/// The first sets flag() and logs "stopping `when`" and `activity()`; a second ends the process
/// with exit code 130. Make it before any other thread.
class StopSignals {
 public:
  StopSignals(std::string when, std::function<std::string()> activity);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] const std::atomic<bool>& flag() const { return stop_; }

 private:
  void wait();

  std::string when_;
  std::function<std::string()> activity_;
  std::atomic<bool> stop_ = false;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace weft::cli
