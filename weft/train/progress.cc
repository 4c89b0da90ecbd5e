#include "weft/train/progress.h"

#include <cmath>

#include <nlohmann/json.hpp>

namespace weft::train {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  return std::isfinite(value) ? Json(value) : Json(nullptr);
}

}  // namespace

std::string window_to_json_line(const WindowFigures& window) {
  Json json = {{"version", 1},
               {"type", "train"},
               {"step", window.step},
               {"samples", window.samples},
               {"samples_per_s", number(window.samples_per_s)},
               {"elapsed_s", number(window.elapsed_s)}};
  Json tasks = Json::array();
  for (std::size_t t = 0; t < window.tasks.size(); ++t) {
    const TaskFigures& task = window.tasks[t];
    tasks.push_back({{"task", task.task},
                     {"window_samples", task.samples},
                     {"loss", number(task.loss)},
                     {"ne", number(task.ne)},
                     {"calibration", number(task.calibration)},
                     {"lifetime_ne", number(window.lifetime_ne[t])}});
  }
  json["tasks"] = std::move(tasks);
  return json.dump() + "\n";
}

TrainingFigures::TrainingFigures(std::int64_t tasks, std::int64_t window_steps)
    : window_steps_(window_steps),
      current_(static_cast<std::size_t>(tasks)),
      lifetime_(static_cast<std::size_t>(tasks)) {
}

bool TrainingFigures::add(const std::vector<metrics::BinarySums>& step) {
  for (std::size_t t = 0; t < step.size(); ++t) {
    current_[t].merge(step[t]);
    lifetime_[t].merge(step[t]);
  }
  if (++steps_ < window_steps_) {
    return false;
  }
  complete_ = current_;
  current_.assign(current_.size(), {});
  steps_ = 0;
  return true;
}

}  // namespace weft::train
