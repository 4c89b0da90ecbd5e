/// Stop requests: SIGINT, SIGTERM and SIGUSR1, taken by a thread of their own.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <string>
#include <thread>

namespace weft::cli {

/// Blocks SIGUSR1, whose default action would end the process, until a StopSignals takes it; one
/// that comes before is kept. Call it first in main(). SIGINT and SIGTERM end a process that has
/// not yet begun anything, as they end the commands that make no StopSignals.
void hold_early_stop_requests();

/// What a signal means to a job, by what came before it. Plain values; no thread of its own.
class StopRequests {
 public:
  using Time = std::chrono::steady_clock::time_point;

  enum class Meaning {
    kStop,      ///< the first request
    kRepeated,  ///< the same signal within a second of the last one that counted: nothing
    kAgain,     ///< the job is stopping already; no signal but SIGINT hastens it
    kEnd,       ///< SIGINT, a second or more after another SIGINT: end the process now
  };

  Meaning take(int signal, Time now);

 private:
  std::map<int, Time> counted_;  // by signal, when the last one that counted came
};

/// Blocks the three signals for the threads made after it, and waits for them on its own thread.
/// The first sets flag() and logs "stopping `when`" and `activity()`. Launchers often send a signal
/// twice, to a process and to its group, so the same one within a second counts once. A further
/// SIGTERM or SIGUSR1 never ends the process: SIGKILL does. A further SIGINT, from a person at a
/// terminal, ends it with exit code 130 and without a checkpoint. Make it before any other thread.
class StopSignals {
 public:
  StopSignals(std::string when, std::function<std::string()> activity);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  [[nodiscard]] const std::atomic<bool>& flag() const { return stop_; }

 private:
  void wait();
  void take(int signal);

  std::string when_;
  std::function<std::string()> activity_;
  StopRequests requests_;  // of the thread below
  std::atomic<bool> stop_ = false;
  std::atomic<bool> done_ = false;
  std::thread thread_;
};

}  // namespace weft::cli
