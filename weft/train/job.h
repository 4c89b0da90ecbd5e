/// A job: from a configuration to a summary, on one rank of a world. Every rank of the world calls
/// the same function with the same options.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "weft/comm/communicator.h"
#include "weft/data/source.h"
#include "weft/spec/config.h"
#include "weft/train/data_identity.h"
#include "weft/train/engine.h"
#include "weft/train/memory_check.h"
#include "weft/train/progress.h"
#include "weft/train/summary.h"
#include "weft/train/trace_session.h"

namespace weft::train {

/// The settings of a job, as the command line gives them. All that is pointed to outlives the job.
struct JobOptions {
  spec::Config config;
  int threads = 1;                    ///< of this rank's pool
  std::string out_dir;                ///< resolved config, plan, summary, metrics; empty = none
  std::string plan_file;              ///< a plan to use; empty = make one
  std::string cluster_file;           ///< a cluster to make it for; empty = know nothing of links
  std::string stats_file;             ///< of weft data stats, for that; empty = know none
  std::string checkpoint_dir;         ///< empty = none
  std::int64_t checkpoint_every = 0;  ///< steps; 0 = at the end only
  std::int64_t checkpoint_keep = 0;   ///< newest ones of the job's line that stay; 0 = all
  /// Write those between the last step and the end while steps go on
  /// (weft/checkpoint/background_save.h). Not where replica groups are averaged.
  bool checkpoint_background = false;
  /// Steps that the newest complete one may be back when saving fails; 0 = checkpoint_age.h's own.
  /// Rank 0's counts.
  std::int64_t checkpoint_max_age = 0;
  /// A checkpoint, or the folder of some; kResumeAuto = the newest of checkpoint_dir, if there is
  /// one; empty = start anew.
  std::string resume;
  ResumeData resume_data = ResumeData::kSame;  ///< of a resumed training
  /// Opens the data in place of data::open_source(), for a caller that has its own source; null for
  /// Split::kEval where there is no evaluation data. Called on every rank; empty = the configured
  /// files. Columns, and what messages say of the data, are the source's.
  std::function<std::unique_ptr<data::Source>(const spec::Config&, data::Split)> open_source;
  const std::atomic<bool>* stop = nullptr;   ///< set when a stop was asked for
  ProgressSink progress;                     ///< used on rank 0
  std::string tensorboard_dir;               ///< event files; empty = none
  TraceOptions trace;                        ///< a trace of some steps; training only
  Shortage on_shortage = Shortage::kRefuse;  ///< of memory for tables
  EngineOptions engine;                      ///< for tests
  io::FileSystem* checkpoint_files =
      nullptr;              ///< for tests: which saves write to; null = real ones
  std::string system_root;  ///< for tests: of memory_limits() and fast_devices()
};

/// Trains. Collective. The summary is equal on all ranks but for timings.
Summary run_train(comm::Communicator& world, const JobOptions& options);

/// Evaluates the model of options.resume, or the initial one, on the evaluation data. Collective.
/// Writes one file of its own in options.out_dir (records.h) and touches no other there.
Summary run_eval(comm::Communicator& world, const JobOptions& options);

}  // namespace weft::train
