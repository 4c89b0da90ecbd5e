#include "cli/signals.h"

#include <csignal>
#include <ctime>

#include <unistd.h>

#include "cli/exit_code.h"
#include "weft/base/log.h"

namespace weft::cli {
namespace {

constexpr std::chrono::seconds kRepeat{1};

sigset_t stop_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

/// What a signal that has counted would do if it came once more.
const char* about_another(int signal) {
  return signal == SIGINT ? "another SIGINT after a second ends at once, without a checkpoint"
                          : "a further SIGTERM or SIGUSR1 changes nothing, SIGKILL ends at once";
}

}  // namespace

void hold_early_stop_requests() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGUSR1);
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
}

StopRequests::Meaning StopRequests::take(int signal, Time now) {
  const bool first = counted_.empty();
  const auto [last, is_new] = counted_.try_emplace(signal, now);
  if (first) {
    return Meaning::kStop;
  }
  if (is_new) {
    return Meaning::kAgain;
  }
  if (now - last->second < kRepeat) {
    return Meaning::kRepeated;
  }
  last->second = now;
  return signal == SIGINT ? Meaning::kEnd : Meaning::kAgain;
}

StopSignals::StopSignals(std::string when, std::function<std::string()> activity)
    : when_(std::move(when)), activity_(std::move(activity)) {
  const sigset_t set = stop_set();
  pthread_sigmask(SIG_BLOCK, &set, nullptr);
  thread_ = std::thread([this] { wait(); });
}

StopSignals::~StopSignals() {
  done_ = true;
  thread_.join();
}

void StopSignals::wait() {
  const sigset_t set = stop_set();
  const timespec pause{.tv_sec = 0, .tv_nsec = 100'000'000};
  while (!done_) {
    const int signal = sigtimedwait(&set, nullptr, &pause);
    if (signal > 0) {
      take(signal);
    }
  }
}

void StopSignals::take(int signal) {
  switch (requests_.take(signal, std::chrono::steady_clock::now())) {
    case StopRequests::Meaning::kRepeated:
      return;
    case StopRequests::Meaning::kEnd:
      log_warning("signal {} again: ending at once, without a checkpoint", signal);
      _exit(kStopped);
    case StopRequests::Meaning::kStop:
      stop_ = true;
      log_warning("signal {}: stopping {}; {}; now: {}", signal, when_, about_another(signal),
                  activity_());
      return;
    case StopRequests::Meaning::kAgain:
      log_warning("signal {}: stopping {} already; {}; now: {}", signal, when_,
                  about_another(signal), activity_());
      return;
  }
}

}  // namespace weft::cli
