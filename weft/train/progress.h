/// Progress: what a run says while it trains. The command line shows it, tests record it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "weft/metrics/binary.h"
#include "weft/train/event_file.h"
#include "weft/train/step_times.h"
#include "weft/train/summary.h"

namespace weft::train {

/// A complete window of training: train.log_every steps, those skipped not counted.
struct WindowFigures {
  std::int64_t step = 0;           ///< the last step whose figures are in
  std::int64_t total_steps = 0;    ///< of the job; 0 = not known
  std::int64_t samples = 0;        ///< of the run so far
  std::int64_t total_samples = 0;  ///< 0 = not known
  std::vector<TaskFigures> tasks;  ///< over the window
  std::vector<double> lifetime_ne;
  double samples_per_s = 0.0;  ///< over the last seconds
  double elapsed_s = 0.0;      ///< of training in this run
  double eta_s = -1.0;         ///< of training still to come; -1 = not known
  StepBreakdown breakdown;     ///< of rank 0, since the window before
};

/// What a job does at the moment.
enum class Phase {
  kReading,       ///< opening and inspecting the data
  kVocabularies,  ///< building them
  kFilling,       ///< making the engine, with initial rows
  kLoading,       ///< a checkpoint
  kTraining,
  kEvaluating,
  kSaving,   ///< a checkpoint
  kHashing,  ///< weights and state, at the end
};

/// "filling tables" and so on.
std::string_view to_string(Phase phase);

/// The phase that a job is in, and how far it has come there.
struct Activity {
  Phase phase = Phase::kReading;
  std::int64_t done = 0;     ///< steps of the job in kTraining, samples in kEvaluating
  std::int64_t total = 0;    ///< the same at the end; 0 = not known
  std::int64_t samples = 0;  ///< trained on in this run, in kTraining
};

/// Called on rank 0, between steps. Must not block for long.
struct ProgressSink {
  /// At the beginning of a phase, and after every batch of it where it has batches.
  std::function<void(const Activity&)> on_activity;
  std::function<void(const WindowFigures&)> on_window;
  std::function<void(const EvalFigures&)> on_eval;
  std::function<void(const std::string&)> on_note;  ///< e.g. where a checkpoint was written
};

/// For TensorBoard: "train/loss" and so on, with several tasks "train/loss/<task>".
std::vector<Figure> figures_of(const WindowFigures& window);
std::vector<Figure> figures_of(const EvalFigures& eval);

/// One line of metrics.jsonl.
std::string window_to_json_line(const WindowFigures& window);

/// Sums of training steps: the current window, the last complete one, and the run's.
class TrainingFigures {
 public:
  TrainingFigures(std::int64_t tasks, std::int64_t window_steps);

  /// The sums [T] of the next step. Returns whether this completes a window.
  bool add(std::span<const metrics::BinarySums> step);

  [[nodiscard]] const std::vector<metrics::BinarySums>& current() const { return current_; }

  /// The last complete window; the current one while there is none.
  [[nodiscard]] const std::vector<metrics::BinarySums>& window() const {
    return complete_.empty() ? current_ : complete_;
  }

  [[nodiscard]] const std::vector<metrics::BinarySums>& lifetime() const { return lifetime_; }

  void restore_lifetime(std::vector<metrics::BinarySums> sums) { lifetime_ = std::move(sums); }

 private:
  std::int64_t window_steps_;
  std::int64_t steps_ = 0;
  std::vector<metrics::BinarySums> current_, complete_, lifetime_;
};

}  // namespace weft::train
