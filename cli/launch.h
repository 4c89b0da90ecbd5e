/// How a job's ranks come to be: threads of this process, or processes of an MPI job.
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "weft/comm/communicator.h"

namespace weft::cli {

struct LaunchOptions {
  int ranks = 0;                          ///< 0 = one, or as many as mpirun started
  std::vector<int> hosts = {};            ///< ranks on each, where they are threads; empty: one
  double timeout_s = 300.0;               ///< of every wait for another rank
  std::string stops = "after this step";  ///< when a stop request is honoured
  std::string command = "weft";           ///< what is launched, for the message of check_launch()
};

/// Throws Error(kUsage) where the environment says that this is one of several processes
/// (WORLD_SIZE or SLURM_STEP_NUM_TASKS above 1) and neither MPI nor `ranks` says what it is of
/// them: each would be a job of its own. Also where `hosts` are not those of `ranks` threads.
void check_launch(const LaunchOptions& options);

/// Runs `body` on every rank, with a flag that a stop request sets (cli/signals.h). Rethrows the
/// world's error, the same on all ranks. Throws Error(kUsage) when --ranks and mpirun disagree, and
/// where this process is alone in an MPI job of which the launcher says that it has several.
void launch(
    const LaunchOptions& options,
    const std::function<void(comm::Communicator& world, const std::atomic<bool>& stop)>& body);

/// Cores of this machine for each of the job's ranks on it, at least 1.
int threads_per_rank(const LaunchOptions& options);

}  // namespace weft::cli
