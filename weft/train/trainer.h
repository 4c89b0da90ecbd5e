/// The training loop: batches from the loader, steps of the engine, figures, evaluations,
/// checkpoints, and stopping.
///
/// Order at a step boundary, equal on all ranks: figures, checkpoint, evaluation, stop. A stop
/// request that reaches any rank is agreed in the exchange of counts of the next step, which all
/// ranks still finish; replica groups train on until they are synchronised next (mesh.sync_every).
/// The end of the data synchronises them. A sync that runs beside the next step is waited for
/// before a checkpoint, an evaluation and the end, and that is time of the training.
///
/// Where the schedule looks ahead, the next batch is read before a step and begun in it, unless
/// that step is the last: ranks know from the counts of the step in hand that they stop. So a batch
/// that was begun is trained on, but where an evaluation is stopped or a step ends the training. A
/// rank that has no next batch ends the job in the step of that batch, after the checkpoint and
/// evaluation of the step before; any other failure of an early stage ends it at once.
///
/// Skipped steps (train.on_non_finite: skip) end the training at train.max_skipped. While any is
/// owed (skip_limit.h) checkpoints wait for the next interval, since they would replace those from
/// before the trouble; the one at the end, or at a stop request, is written.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <optional>

#include "weft/data/loader.h"
#include "weft/metrics/score_window.h"
#include "weft/metrics/throughput.h"
#include "weft/spec/config.h"
#include "weft/train/checkpoint_age.h"
#include "weft/train/engine.h"
#include "weft/train/progress.h"
#include "weft/train/skip_limit.h"
#include "weft/train/summary.h"
#include "weft/train/trace_session.h"

namespace weft::train {

class Trainer;

/// The state that a training begins with, and what it calls between steps. Ranks differ in `stop`
/// and `progress` at most.
struct TrainerOptions {
  std::int64_t first_step = 0;          ///< steps done before (resume)
  data::ReaderPosition start;           ///< where the data are read from on (resume)
  std::int64_t samples_per_epoch = -1;  ///< for the ETA; -1 = not known
  const std::atomic<bool>* stop = nullptr;
  ProgressSink progress;          ///< on rank 0; empty elsewhere
  TraceSession* trace = nullptr;  ///< the engine's recorder is its; may be null
  /// Writes a checkpoint of the trainer's last step; called at multiples of checkpoint_every and,
  /// unless that step was saved there, at the end. Returns whether it was written, kFinal always:
  /// it throws. The same on all ranks.
  std::function<bool(const Trainer& trainer, SaveKind kind)> save;
  std::int64_t checkpoint_every = 0;
  std::int64_t saved_step = -1;  ///< of which there is a checkpoint already; -1 = none
  /// Evaluates; empty when there is no evaluation data. No figures: a stop was agreed on the way.
  std::function<std::optional<EvalFigures>(std::int64_t step)> evaluate;
  std::int64_t window_scores = metrics::kWindowScores;  ///< of the AUC of a window; for tests
};

/// Trains one engine on one loader's batches: run() once, then report().
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

  [[nodiscard]] const TrainingFigures& figures() const { return figures_; }

  /// Whose count of skipped steps is part of a checkpoint.
  [[nodiscard]] SkipLimit& skips() { return skips_; }

  [[nodiscard]] const SkipLimit& skips() const { return skips_; }

  /// The last step done, of the whole job, and where the reader goes on after its batch.
  [[nodiscard]] std::int64_t step() const { return step_; }

  [[nodiscard]] const data::ReaderPosition& position() const { return position_; }

  /// After run(): the job's end was there before its first step, and no stop was asked for.
  [[nodiscard]] bool trained_nothing() const { return step_ == options_.first_step && !stopped_; }

  /// Fills in what the run found out; hashes and the job's own fields are left to the caller.
  /// Collective.
  void report(Summary& summary);

 private:
  /// A batch and what a step is told of it.
  struct Place {
    data::Batch batch;
    StepInput input{.batch = batch};
  };

  [[nodiscard]] bool stop_asked() const;
  void say_training() const;
  void train();
  bool read(Place& to, std::int64_t step);
  const StepInput* read_ahead(std::int64_t step);
  void take(const StepOutcome& outcome);
  void take_late();
  void warn_of_codecs(const CodecReport& codecs);
  void count_skipped(const StepOutcome& outcome);
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
  std::array<Place, 2> places_;  // of the step in hand, and of the batch ahead
  std::size_t now_ = 0;          // the place of the step in hand
  bool has_next_ = false;        // whether the batch after it has been read
  TrainingFigures figures_;
  metrics::Throughput throughput_;
  std::chrono::nanoseconds train_time_{0};
  StepBreakdown breakdown_;                        // since the last window
  std::int64_t step_;                              // steps done, of the job
  data::ReaderPosition position_;                  // after the batch of that step
  metrics::ScoreWindow scores_, complete_scores_;  // of the windows of figures_
  bool window_is_complete_ = false;                // whether complete_scores_ are of one
  std::int64_t scored_steps_ = 0;
  std::int64_t samples_ = 0;
  SkipLimit skips_;
  CodecReport codecs_;         // of steps so far
  CodecReport warned_codecs_;  // of these, warned of
  std::int64_t saved_step_;
  std::int64_t evaluated_step_ = -1;
  bool stop_agreed_ = false;
  bool stopped_ = false;
  std::optional<EvalFigures> eval_;
};

}  // namespace weft::train
