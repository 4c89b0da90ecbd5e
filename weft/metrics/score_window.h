/// Scores of the newest steps of a window of training, for its AUC.
///
/// Bound      whole steps of the global batch, at most kWindowScores samples of it and at least one
///            step. So which samples count does not depend on the number of ranks, and neither does
///            the AUC; memory does not grow with the window.
/// Memory     4 bytes per kept sample of this rank and task and 16 per kept step and task; between
///            two removals twice the bound.
/// Threads    not thread-safe.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "weft/metrics/auc.h"

namespace weft::metrics {

/// Samples of the global batch, over the kept steps.
inline constexpr std::int64_t kWindowScores = std::int64_t{1} << 22;

/// The samples of the newest steps, by task.
class ScoreWindow {
 public:
  /// `tasks` T, `batch_size` the samples of the global batch, `most` the bound: kWindowScores but
  /// for tests.
  ScoreWindow(std::int64_t tasks, std::int64_t batch_size, std::int64_t most = kWindowScores);

  /// This rank's samples of the next step, [B, T] each, in any number.
  void add_step(std::span<const float> logits,
                std::span<const float> labels,
                std::span<const float> weights);

  /// Forgets all steps: a new window begins.
  void clear();

  /// Those of the kept steps, [T]; removes what is older.
  [[nodiscard]] const std::vector<AucSamples>& samples();

  /// Samples held now, those that wait for their removal too; of the task with the most.
  [[nodiscard]] std::int64_t held() const;

  /// Steps of which samples() are the newest.
  [[nodiscard]] std::int64_t most_steps() const { return most_steps_; }

 private:
  void remove_old();

  std::int64_t most_steps_;
  std::vector<AucSamples> samples_;  // [T]
  std::vector<AucCounts> counts_;    // [steps][T], oldest first
};

}  // namespace weft::metrics
