#include "cli/prometheus.h"

#include <cmath>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace weft::cli {
namespace {

std::string value_of(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  return std::isinf(value) ? (value > 0 ? "+Inf" : "-Inf") : fmt::format("{:.17g}", value);
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '\\' || c == '"') {
      out += '\\';
    }
    out += c == '\n' ? std::string_view("\\n") : std::string_view(&c, 1);
  }
  return out;
}

class Exposition {
 public:
  void head(std::string_view name, std::string_view type, std::string_view help) {
    text_ += fmt::format("# HELP {0} {2}\n# TYPE {0} {1}\n", name, type, help);
  }

  void sample(std::string_view name, double value) {
    text_ += fmt::format("{} {}\n", name, value_of(value));
  }

  void sample(std::string_view name,
              std::string_view label,
              std::string_view label_value,
              double value) {
    text_ +=
        fmt::format("{}{{{}=\"{}\"}} {}\n", name, label, escaped(label_value), value_of(value));
  }

  void gauge(std::string_view name, std::string_view help, double value) {
    head(name, "gauge", help);
    sample(name, value);
  }

  template <typename Figure>
  void per_task(std::string_view name,
                std::string_view help,
                const std::vector<train::TaskFigures>& tasks,
                const Figure& figure) {
    head(name, "gauge", help);
    for (const train::TaskFigures& task : tasks) {
      sample(name, "task", task.task, figure(task));
    }
  }

  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

void add_window(Exposition& out, const train::WindowFigures& window) {
  out.gauge("weft_step", "Training steps done, of the job.", static_cast<double>(window.step));
  out.head("weft_samples_total", "counter", "Samples trained on in this run, over all ranks.");
  out.sample("weft_samples_total", static_cast<double>(window.samples));
  out.gauge("weft_samples_per_second", "Over the last seconds, all ranks.", window.samples_per_s);
  using train::TaskFigures;
  out.per_task("weft_train_loss", "Mean loss of the last window, nats.", window.tasks,
               [](const TaskFigures& task) { return task.loss; });
  out.per_task("weft_train_ne", "Normalised entropy of the last window.", window.tasks,
               [](const TaskFigures& task) { return task.ne; });
  out.per_task("weft_train_calibration", "Predicted over observed, last window.", window.tasks,
               [](const TaskFigures& task) { return task.calibration; });
  const train::StepBreakdown& time = window.breakdown;
  out.head("weft_time_share", "gauge", "Where rank 0's time went in the last window.");
  for (const auto& [part, seconds] : {std::pair{"data", time.data},
                                      {"exchange", time.exchange},
                                      {"lookup", time.lookup},
                                      {"dense", time.dense},
                                      {"update", time.update}}) {
    out.sample("weft_time_share", "part", part, seconds / time.total);
  }
}

void add_eval(Exposition& out, const train::EvalFigures& eval) {
  using train::TaskFigures;
  out.gauge("weft_eval_step", "Step of the last evaluation.", static_cast<double>(eval.step));
  out.per_task("weft_eval_loss", "Mean loss of the last evaluation, nats.", eval.tasks,
               [](const TaskFigures& task) { return task.loss; });
  out.per_task("weft_eval_ne", "Normalised entropy of the last evaluation.", eval.tasks,
               [](const TaskFigures& task) { return task.ne; });
  out.per_task("weft_eval_auc", "AUC of the last evaluation.", eval.tasks,
               [](const TaskFigures& task) { return task.auc; });
}

}  // namespace

std::string to_prometheus(const train::WindowFigures* window, const train::EvalFigures* eval) {
  Exposition out;
  out.gauge("weft_up", "1 while the job runs.", 1);
  if (window != nullptr) {
    add_window(out, *window);
  }
  if (eval != nullptr) {
    add_eval(out, *eval);
  }
  return out.take();
}

}  // namespace weft::cli
