#include "cli/launch.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <sched.h>

#include "cli/exit_code.h"
#include "cli/output.h"
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

/// Ranks of an MPI job on this machine, by what its launcher says; 1 where it says nothing.
int ranks_on_this_machine() {
  const int machines = environment({"SLURM_STEP_NUM_NODES", "SLURM_JOB_NUM_NODES"}, 1);
  const int tasks = environment({"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"}, 1);
  const int by_slurm = (tasks + machines - 1) / std::max(1, machines);
  return environment({"OMPI_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"}, by_slurm);
}

/// Cores this process may run on: fewer than the machine has under taskset or a binding launcher.
int usable_cores() {
  cpu_set_t cores;
  if (sched_getaffinity(0, sizeof(cores), &cores) != 0) {
    return static_cast<int>(std::thread::hardware_concurrency());
  }
  return CPU_COUNT(&cores);
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

/// Refuses to be alone in a world of MPI where the launcher says that it started several processes:
/// it is of another MPI than the program.
void check_joined(const LaunchOptions& options, const comm::Communicator& world) {
  const int processes =
      environment({"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "SLURM_STEP_NUM_TASKS", "WORLD_SIZE"}, 1);
  if (world.size() == 1 && options.ranks == 0 && processes > 1) {
    fail(ErrorCode::kUsage,
         "the launcher started {} processes, and this one is alone in its MPI job, so that each "
         "would "
         "be a job of its own: the launcher is of another MPI than the one Weft was built with. "
         "Start "
         "it with that one's mpirun -n {} {} ..., or build with the launcher's (docs/cluster.md); "
         "--ranks 1 says that this process is a job by itself",
         processes, processes, options.command);
  }
}

void launch_mpi(const LaunchOptions& options,
                const std::function<void(comm::Communicator&, const std::atomic<bool>&)>& body) {
  RunningSession running;
  const StopSignals signals(options.stops, [&running] { return running.activity(); });
  comm::MpiSession session({.timeout_s = options.timeout_s});
  running.set(&session);
  const std::unique_ptr<RunningSession, void (*)(RunningSession*)> forget(
      &running, [](RunningSession* ended) { ended->set(nullptr); });
  session.run([&](comm::Communicator& world) {
    if (options.ranks > 0 && options.ranks != world.size()) {
      fail(ErrorCode::kUsage, "--ranks {} under an MPI launcher that started {}; leave --ranks out",
           options.ranks, world.size());
    }
    check_joined(options, world);
    body(world, signals.flag());
  });
}

/// A rank's thread cannot be taken away from a disk that does not answer, so the process ends.
[[noreturn]] void end_process(const Error& error, std::span<const int> ranks, double seconds) {
  write_error(fmt::format(
      "weft: error: rank {}: {}; ended here: after {:.1f} s rank{} {} had not come to the end\n",
      error.origin_rank(), error.what(), seconds, ranks.size() == 1 ? "" : "s",
      fmt::join(ranks, ", ")));
  std::_Exit(exit_code(error.code()));
}

void check_hosts(const LaunchOptions& options) {
  const int ranks = std::accumulate(options.hosts.begin(), options.hosts.end(), 0);
  if (options.hosts.empty() || (ranks == options.ranks && !comm::launched_by_mpi())) {
    return;
  }
  if (comm::launched_by_mpi()) {
    fail(
        ErrorCode::kUsage,
        "--hosts is for ranks that are threads of one process; under an MPI launcher the hosts are "
        "those of the processes, so leave it out");
  }
  fail(ErrorCode::kUsage, "--hosts has {} ranks and --ranks is {}; give as many", ranks,
       options.ranks);
}

/// [ranks] the host of each.
std::vector<int> hosts_of_ranks(const LaunchOptions& options) {
  std::vector<int> hosts;
  for (std::size_t h = 0; h < options.hosts.size(); ++h) {
    hosts.insert(hosts.end(), static_cast<std::size_t>(options.hosts[h]), static_cast<int>(h));
  }
  return hosts;
}

void launch_local(const LaunchOptions& options,
                  const std::function<void(comm::Communicator&, const std::atomic<bool>&)>& body) {
  const auto activity = std::make_shared<comm::ActivityLog>();
  const StopSignals signals(options.stops, [activity] { return activity->describe(); });
  comm::run_local(std::max(1, options.ranks),
                  {.timeout_s = options.timeout_s,
                   .give_up = end_process,
                   .activity = activity,
                   .hosts = hosts_of_ranks(options)},
                  [&](comm::Communicator& world) { body(world, signals.flag()); });
}

}  // namespace

void check_launch(const LaunchOptions& options) {
  check_hosts(options);
  if (options.ranks > 0 || comm::launched_by_mpi()) {
    return;
  }
  for (const auto& [name, starter] :
       {std::pair{"SLURM_STEP_NUM_TASKS", "srun --mpi=pmix"}, std::pair{"WORLD_SIZE", "mpirun"}}) {
    if (const int processes = environment({name}, 1); processes > 1) {
      fail(
          ErrorCode::kUsage,
          "{} is {}: this is one of {} processes, and nothing says which rank of one job it is, so "
          "that each would be a job of its own. Ranks are started by MPI: {} -n {} {} ... "
          "(docs/cluster.md). If this process is a job by itself, say how many ranks it has: "
          "--ranks 1",
          name, processes, processes, starter, processes, options.command);
    }
  }
}

void launch(const LaunchOptions& options,
            const std::function<void(comm::Communicator&, const std::atomic<bool>&)>& body) {
  if (comm::launched_by_mpi()) {
    launch_mpi(options, body);
  } else {
    launch_local(options, body);
  }
}

int threads_per_rank(const LaunchOptions& options) {
  const int ranks = comm::launched_by_mpi() ? ranks_on_this_machine() : options.ranks;
  return std::max(1, usable_cores() / std::max(1, ranks));
}

}  // namespace weft::cli
