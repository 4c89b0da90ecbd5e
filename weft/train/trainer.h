/// The training loop: batches from the loader, steps of the engine, figures, evaluations,
/// checkpoints, and stopping.
///
/// Order at a step boundary, equal on all ranks: figures, checkpoint, evaluation, stop. A stop
/// request that reaches any rank is agreed in the exchange of counts of the next step, which all
/// ranks still finish; replica groups train on until they are synchronised next (mesh.sync_every).
/// The end of the data synchronises them. A sync that runs beside the next step is waited for
/// before a checkpoint, an evaluation and the end, and that is time of the training.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "weft/data/loader.h"
#include "weft/metrics/auc.h"
#include "weft/metrics/throughput.h"
#include "weft/spec/config.h"
#include "weft/train/engine.h"
#include "weft/train/progress.h"
#include "weft/train/summary.h"
#include "weft/train/trace_session.h"

namespace weft::train {

struct TrainerOptions {
  std::int64_t first_step = 0;          ///< steps done before (resume)
  std::int64_t samples_per_epoch = -1;  ///< for the ETA; -1 = not known
  const std::atomic<bool>* stop = nullptr;
  ProgressSink progress;          ///< on rank 0; empty elsewhere
  TraceSession* trace = nullptr;  ///< the engine's recorder is its; may be null
  /// Writes a checkpoint of `step`; called at multiples of checkpoint_every and at the end.
  std::function<void(std::int64_t step)> save;
  std::int64_t checkpoint_every = 0;
  std::int64_t saved_step = -1;  ///< of which there is a checkpoint already; -1 = none
  /// Evaluates; empty when there is no evaluation data. No figures: a stop was agreed on the way.
  std::function<std::optional<EvalFigures>(std::int64_t step)> evaluate;
};

class Trainer {
 public:
  /// All outlive the trainer.
  Trainer(const spec::Config& config,
          Engine& engine,
          data::Loader& loader,
          const TrainerOptions& options);

  /// Trains to the end of the data, of train.steps, or to a stop. Collective.
  void run();

  [[nodiscard]] TrainingFigures& figures() { return figures_; }

  /// Fills in what the run found out; hashes and the job's own fields are left to the caller.
  /// Collective.
  void report(Summary& summary);

 private:
  [[nodiscard]] bool stop_asked() const;
  bool next_batch(data::Batch& batch);
  void take(const GlobalControl& control);
  void warn_of_codecs(const CodecReport& codecs);
  void add_scores(const data::Batch& batch);
  [[nodiscard]] bool saves_after(std::int64_t step) const;
  [[nodiscard]] bool evaluates_after(std::int64_t step) const;
  void boundary(std::int64_t step);
  void evaluate(std::int64_t step);
  [[nodiscard]] std::int64_t total_steps() const;

  const spec::Config& config_;
  Engine& engine_;
  data::Loader& loader_;
  TrainerOptions options_;
  TrainingFigures figures_;
  metrics::Throughput throughput_;
  std::chrono::nanoseconds train_time_{0};
  StepBreakdown breakdown_;                                    // since the last window
  std::int64_t step_;                                          // steps done, of the job
  std::vector<metrics::AucSamples> scores_, complete_scores_;  // [T], of the windows of figures_
  std::int64_t scored_steps_ = 0;
  std::int64_t samples_ = 0;
  std::int64_t skipped_ = 0;
  CodecReport codec_losses_;  // warned of
  std::int64_t saved_step_;
  std::int64_t evaluated_step_ = -1;
  bool stop_agreed_ = false;
  bool stopped_ = false;
  std::optional<EvalFigures> eval_;
};

}  // namespace weft::train
