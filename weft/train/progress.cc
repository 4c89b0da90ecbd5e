#include "weft/train/progress.h"

#include <cmath>
#include <utility>

#include <nlohmann/json.hpp>

#include "weft/train/json_number.h"

namespace weft::train {
namespace {

using Json = nlohmann::ordered_json;

void add_task(const std::string& group,
              const TaskFigures& task,
              bool several,
              std::vector<Figure>& figures) {
  const std::string tail = several ? "/" + task.task : "";
  figures.push_back({group + "/loss" + tail, task.loss});
  figures.push_back({group + "/ne" + tail, task.ne});
  figures.push_back({group + "/calibration" + tail, task.calibration});
}

}  // namespace

std::string_view to_string(Phase phase) {
  switch (phase) {
    case Phase::kReading:
      return "reading data";
    case Phase::kVocabularies:
      return "building vocabularies";
    case Phase::kFilling:
      return "filling tables";
    case Phase::kLoading:
      return "loading the checkpoint";
    case Phase::kTraining:
      return "training";
    case Phase::kEvaluating:
      return "evaluating";
    case Phase::kSaving:
      return "writing a checkpoint";
    case Phase::kHashing:
      return "hashing weights";
  }
  return "";
}

std::vector<Figure> figures_of(const WindowFigures& window) {
  std::vector<Figure> figures;
  for (const TaskFigures& task : window.tasks) {
    add_task("train", task, window.tasks.size() > 1, figures);
  }
  const StepBreakdown& time = window.breakdown;
  figures.push_back({"speed/samples_per_s", window.samples_per_s});
  for (const auto& [name, seconds] : {std::pair{"data", time.data},
                                      {"exchange", time.exchange},
                                      {"lookup", time.lookup},
                                      {"dense", time.dense},
                                      {"update", time.update}}) {
    figures.push_back({std::string("time/") + name, seconds / time.total});
  }
  return figures;
}

std::vector<Figure> figures_of(const EvalFigures& eval) {
  std::vector<Figure> figures;
  for (const TaskFigures& task : eval.tasks) {
    add_task("eval", task, eval.tasks.size() > 1, figures);
    figures.push_back({eval.tasks.size() > 1 ? "eval/auc/" + task.task : "eval/auc", task.auc});
  }
  return figures;
}

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
  const StepBreakdown& time = window.breakdown;
  json["seconds"] = {{"total", time.total},   {"data", time.data},   {"exchange", time.exchange},
                     {"lookup", time.lookup}, {"dense", time.dense}, {"update", time.update}};
  return json.dump() + "\n";
}

TrainingFigures::TrainingFigures(std::int64_t tasks, std::int64_t window_steps)
    : window_steps_(window_steps),
      current_(static_cast<std::size_t>(tasks)),
      lifetime_(static_cast<std::size_t>(tasks)) {
}

bool TrainingFigures::add(std::span<const metrics::BinarySums> step) {
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
