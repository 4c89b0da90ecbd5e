#include "cli/signals.h"

#include <csignal>
#include <ctime>

#include <unistd.h>

#include "cli/exit_code.h"
#include "weft/base/log.h"

namespace weft::cli {
namespace {

sigset_t stop_set() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  sigaddset(&set, SIGUSR1);
  return set;
}

}  // namespace

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
    if (signal <= 0) {
      continue;
    }
    if (stop_.exchange(true)) {
      _exit(kStopped);
    }
    log_warning("signal {}: stopping {}; now: {}", signal, when_, activity_());
  }
}

}  // namespace weft::cli
