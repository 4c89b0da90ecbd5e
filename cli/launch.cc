#include "cli/launch.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "cli/signals.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"

namespace weft::cli {
namespace {

/// An integer of the environment under one of the launchers' names, or `otherwise`.
int environment(std::initializer_list<const char*> names, int otherwise) {
  for (const char* name : names) {
    const char* text = std::getenv(name);
    if (text != nullptr) {
      char* end = nullptr;
      const long value = std::strtol(text, &end, 10);
      if (end != text && value >= 0 && value < 1'000'000) {
        return static_cast<int>(value);
      }
    }
  }
  return otherwise;
}

/// The MPI session as the thread for signals sees it, which begins before it and ends after it.
class RunningSession {
 public:
  void set(const comm::MpiSession* session) {
    const std::lock_guard lock(mutex_);
    session_ = session;
  }

  [[nodiscard]] std::string activity() const {
    const std::lock_guard lock(mutex_);
    return session_ == nullptr ? "starting or ending" : session_->current_activity();
  }

 private:
  mutable std::mutex mutex_;
  const comm::MpiSession* session_ = nullptr;
};

void launch_mpi(const LaunchOptions& options,
                const std::function<void(comm::Communicator&, const std::atomic<bool>&)>& body) {
  RunningSession running;
  const StopSignals signals([&running] { return running.activity(); });
  comm::MpiSession session({.timeout_s = options.timeout_s});
  running.set(&session);
  const std::unique_ptr<RunningSession, void (*)(RunningSession*)> forget(
      &running, [](RunningSession* ended) { ended->set(nullptr); });
  session.run([&](comm::Communicator& world) {
    if (options.ranks > 0 && options.ranks != world.size()) {
      fail(ErrorCode::kUsage, "--ranks {} under an MPI launcher that started {}; leave --ranks out",
           options.ranks, world.size());
    }
    body(world, signals.flag());
  });
}

void launch_local(const LaunchOptions& options,
                  const std::function<void(comm::Communicator&, const std::atomic<bool>&)>& body) {
  const auto activity = std::make_shared<comm::ActivityLog>();
  const StopSignals signals([activity] { return activity->describe(); });
  comm::run_local(std::max(1, options.ranks),
                  {.timeout_s = options.timeout_s, .activity = activity},
                  [&](comm::Communicator& world) { body(world, signals.flag()); });
}

}  // namespace

void launch(const LaunchOptions& options,
            const std::function<void(comm::Communicator&, const std::atomic<bool>&)>& body) {
  if (comm::launched_by_mpi()) {
    launch_mpi(options, body);
  } else {
    launch_local(options, body);
  }
}

int threads_per_rank(const LaunchOptions& options) {
  const int ranks =
      comm::launched_by_mpi()
          ? environment({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS", "SLURM_NTASKS_PER_NODE"},
                        1)
          : options.ranks;
  const auto cores = static_cast<int>(std::thread::hardware_concurrency());
  return std::max(1, cores / std::max(1, ranks));
}

}  // namespace weft::cli
