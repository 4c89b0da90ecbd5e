#include "weft/metrics/score_window.h"

#include <algorithm>

#include "weft/base/error.h"

namespace weft::metrics {

ScoreWindow::ScoreWindow(std::int64_t tasks, std::int64_t batch_size, std::int64_t most)
    : most_steps_(std::max<std::int64_t>(1, most / std::max<std::int64_t>(1, batch_size))),
      samples_(static_cast<std::size_t>(tasks)) {
}

void ScoreWindow::add_step(std::span<const float> logits,
                           std::span<const float> labels,
                           std::span<const float> weights) {
  const std::size_t tasks = samples_.size();
  WEFT_CHECK(labels.size() == logits.size() && weights.size() == logits.size() &&
                 logits.size() % tasks == 0,
             "{} logits, {} labels, {} weights of {} tasks", logits.size(), labels.size(),
             weights.size(), tasks);
  for (const AucSamples& samples : samples_) {
    counts_.push_back(samples.counts());
  }
  for (std::size_t i = 0; i < logits.size(); ++i) {
    samples_[i % tasks].add(logits[i], labels[i], weights[i]);
  }
  AucCounts* const step = counts_.data() + counts_.size() - tasks;
  for (std::size_t t = 0; t < tasks; ++t) {
    const AucCounts now = samples_[t].counts();
    step[t] = {.positives = now.positives - step[t].positives,
               .negatives = now.negatives - step[t].negatives};
  }
  // Twice as many at most, so that moving the kept ones to the front costs little per step.
  if (static_cast<std::int64_t>(counts_.size() / tasks) >= 2 * most_steps_) {
    remove_old();
  }
}

void ScoreWindow::remove_old() {
  const std::size_t tasks = samples_.size();
  const auto old = static_cast<std::int64_t>(counts_.size() / tasks) - most_steps_;
  if (old <= 0) {
    return;
  }
  const auto end = counts_.begin() + old * static_cast<std::int64_t>(tasks);
  for (std::size_t t = 0; t < tasks; ++t) {
    AucCounts sum;
    for (auto step = counts_.begin(); step != end; step += static_cast<std::int64_t>(tasks)) {
      sum.positives += step[static_cast<std::int64_t>(t)].positives;
      sum.negatives += step[static_cast<std::int64_t>(t)].negatives;
    }
    samples_[t].remove_first(sum);
  }
  counts_.erase(counts_.begin(), end);
}

void ScoreWindow::clear() {
  for (AucSamples& samples : samples_) {
    samples.clear();
  }
  counts_.clear();
}

const std::vector<AucSamples>& ScoreWindow::samples() {
  remove_old();
  return samples_;
}

std::int64_t ScoreWindow::held() const {
  std::int64_t most = 0;
  for (const AucSamples& samples : samples_) {
    most = std::max(most, samples.size());
  }
  return most;
}

}  // namespace weft::metrics
