/// What a job reports: figures of a run as plain values, and their JSON form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "weft/metrics/binary.h"
#include "weft/sharding/sharded_embeddings.h"
#include "weft/spec/pipeline.h"
#include "weft/train/step_report.h"
#include "weft/train/tier_figures.h"

namespace weft::train {

/// Figures of one task over some samples. NaN (null in JSON) where undefined.
struct TaskFigures {
  std::string task;
  std::int64_t samples = 0;
  double loss = 0.0;  ///< Σ weight·loss / Σ weight, nats: the same as log_loss
  double ne = 0.0;
  double auc = 0.0;
  double log_loss = 0.0;
  double calibration = 0.0;
  double label_mean = 0.0;
};

/// The figures that BinarySums give; auc is left to the caller.
TaskFigures figures(const std::string& task, const metrics::BinarySums& sums);

/// One evaluation.
struct EvalFigures {
  std::int64_t step = 0;
  double wall_s = 0.0;
  std::vector<TaskFigures> tasks;
  std::optional<double> bayes_ne;  ///< of the evaluation data, where known
  CodecReport codecs;              ///< what encoding its vectors, and steps before it, has changed
};

/// Where the memory of a job went, in bytes.
struct MemoryFigures {
  std::int64_t tables = 0;  ///< rows and optimizer state, of all ranks together
  /// Of the largest process: what Buffers and HostBlocks took at most at one time, the tables among
  /// them (weft/tensor/memory_use.h); the rest of the heap when the training has ended, batches and
  /// libraries; and what was resident before the job began.
  std::int64_t buffers_peak = 0;
  std::int64_t heap = 0;
  std::int64_t program = 0;
};

/// What could not be written and ended nothing.
struct LostRecords {
  std::int64_t metrics = 0;      ///< lines of metrics.jsonl
  std::int64_t events = 0;       ///< figures of event files, by step
  std::int64_t traces = 0;       ///< files of ranks
  std::int64_t checkpoints = 0;  ///< of an interval, tried again at the next one
};

/// The figures of a run. Those that it has none for keep their defaults.
struct Summary {
  std::int64_t samples = 0;    ///< trained on, over all ranks and epochs
  std::int64_t steps = 0;      ///< made in this run
  std::int64_t last_step = 0;  ///< of the job, counting those before a resume
  std::int64_t skipped_steps = 0;
  double wall_s = 0.0;              ///< of the job
  double train_s = 0.0;             ///< of training steps
  std::int64_t window_samples = 0;  ///< over which the training figures are
  std::vector<TaskFigures> window;  ///< the last complete window of training
  std::vector<double> lifetime_ne;  ///< per task, over the run
  std::optional<EvalFigures> eval;
  /// By table, of those with any: values that codecs clipped or found non-finite, over the run, its
  /// evaluations and all ranks.
  std::vector<std::pair<std::string, sharding::TableClips>> codec_clips;
  kernels::CodecClips dense_codec_clips;    ///< of sums of dense gradients
  sharding::SyncClips sync_codec_clips;     ///< of syncs of replica groups
  std::vector<std::string> skipped_stages;  ///< debug.skip: with any, nothing was trained
  std::uint64_t weights_hash = 0;
  std::uint64_t state_hash = 0;
  std::int64_t ranks = 1;
  std::int64_t threads = 1;  ///< per rank
  std::int64_t parts = 8;
  std::string target;
  spec::Pipeline pipeline;          ///< resolved
  std::int64_t peak_rss_bytes = 0;  ///< of the largest process
  MemoryFigures memory;
  TierFigures tiers;  ///< of tables whose rows are not all in memory
  std::string plan_hash;
  std::string config_yaml;
  LostRecords lost;
  bool stopped = false;  ///< ended by a stop request
};

/// JSON text, "version": 1. Hashes are hexadecimal strings. The first task's figures stand at the
/// top level; with several tasks, `tasks` lists all.
std::string to_json(const Summary& summary);

/// One line of metrics.jsonl.
std::string eval_to_json_line(const EvalFigures& eval);

}  // namespace weft::train
