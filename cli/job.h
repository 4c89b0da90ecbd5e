/// What `weft train` and `weft eval` share: arguments, launching, progress and the report.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <CLI/App.hpp>

#include "cli/commands.h"
#include "weft/train/job.h"

namespace weft::cli {

struct JobArguments {
  ConfigArguments config;
  int ranks = 0;           ///< 0 = one, or the MPI job's
  std::vector<int> hosts;  ///< ranks on each, where they are threads; empty = one host
  int threads = 0;         ///< per rank; 0 = cores / ranks
  std::string summary, out, plan, cluster, stats, checkpoint, resume, resume_data;
  std::int64_t checkpoint_every = 0;
  std::int64_t checkpoint_keep = 0;
  bool checkpoint_background = false;
  std::int64_t checkpoint_max_age = 0;
  bool ignore_memory_limits = false;
  std::string trace, trace_steps, tensorboard;
  int metrics_port = -1;  ///< -1 = none, 0 = any
  std::string metrics_address = "127.0.0.1";
  bool quiet = false;
};

/// train::run_train or train::run_eval.
using RunFunction = train::Summary (*)(comm::Communicator&, const train::JobOptions&);

/// The arguments both commands take. `arguments` must outlive the parsing.
void add_job_arguments(CLI::App& command, JobArguments& arguments);

/// Runs the job on its ranks and reports; returns the exit code.
int run_job(const JobArguments& arguments, RunFunction run);

}  // namespace weft::cli
