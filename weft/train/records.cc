#include "weft/train/records.h"

#include <array>
#include <filesystem>
#include <span>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

using NameParts = std::pair<const char*, const char*>;
constexpr std::array<NameParts, 4> kOfRun = {
    {{"metrics", "jsonl"}, {"config", "yaml"}, {"plan", "yaml"}, {"summary", "json"}}};

bool has_numbered(const fs::path& folder, int number) {
  for (const auto& [name, ending] : kOfRun) {
    if (fs::exists(fs::symlink_status(folder / fmt::format("{}.{}.{}", name, number, ending)))) {
      return true;
    }
  }
  return false;
}

/// Gives the files of an earlier run with figures the next free number.
void keep_earlier_run(const fs::path& folder) {
  std::error_code none;
  if (!fs::is_regular_file(folder / "metrics.jsonl", none) ||
      fs::file_size(folder / "metrics.jsonl", none) == 0) {
    return;
  }
  int number = 1;
  while (has_numbered(folder, number)) {
    ++number;
  }
  for (const auto& [name, ending] : kOfRun) {
    const fs::path from = folder / fmt::format("{}.{}", name, ending);
    const fs::path to = folder / fmt::format("{}.{}.{}", name, number, ending);
    std::error_code error;
    fs::rename(from, to, error);
    if (error && error != std::errc::no_such_file_or_directory) {
      fail(ErrorCode::kIo, "cannot rename {} to {} to keep an earlier run's records: {}",
           from.string(), to.string(), error.message());
    }
  }
  log_info("--out {}: the records of an earlier run are now metrics.{}.jsonl and so on",
           folder.string(), number);
}

}  // namespace

Records::Records(const RecordsOptions& options) : folder_(options.folder), run_(options.run) {
  if (!folder_.empty()) {
    const std::string path = (fs::path(folder_) / "metrics.jsonl").string();
    metrics_.emplace(path, "check space and permissions");
    run_(path, [&] {
      prepare_folder(options);
      metrics_->append("");
    });
  }
  if (!options.tensorboard.empty()) {
    run_(options.tensorboard, [&] { events_.emplace(options.tensorboard); });
  }
}

void Records::prepare_folder(const RecordsOptions& options) const {
  make_record_folder(folder_, "--out");
  const fs::path folder = folder_;
  if (!options.resumed_step) {
    keep_earlier_run(folder);
  } else if (const auto gone = trim_lines(folder / "metrics.jsonl", *options.resumed_step)) {
    log_info("--out {}: removed {} of metrics.jsonl, cut or beyond step {}", folder_,
             counted(gone, "line"), *options.resumed_step);
  }
  replace_file(folder / "config.yaml", options.config_yaml);
  replace_file(folder / "plan.yaml", options.plan_yaml);
}

void Records::add(const WindowFigures& window) {
  add_line(window_to_json_line(window));
  add_event(window.step, figures_of(window));
}

void Records::add(const EvalFigures& eval) {
  add_line(eval_to_json_line(eval));
  add_event(eval.step, figures_of(eval));
}

void Records::add_line(const std::string& line) {
  if (metrics_) {
    attempt("lines of metrics.jsonl", metrics_->path(), lost_.metrics, reported_.metrics,
            [&] { metrics_->append(line); });
  }
}

void Records::add_event(std::int64_t step, const std::vector<Figure>& figures) {
  if (events_) {
    attempt("events", events_->path(), lost_.events, reported_.events,
            [&] { events_->add(step, figures); });
  }
}

/// A warning at the first failure, a note at the first success after some.
void Records::attempt(const char* what,
                      const std::string& path,
                      std::int64_t& lost,
                      std::int64_t& lost_before,
                      const std::function<void()>& write) const {
  try {
    run_(path, write);
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) {
      throw;
    }
    if (lost++ == lost_before) {
      log_warning("{}; the training goes on, later figures are tried again", error.what());
    }
    return;
  }
  if (lost > lost_before) {
    log_info("{} are written again; {} are lost", what, lost - lost_before);
    lost_before = lost;
  }
}

void Records::write_summary(const Summary& summary) {
  if (folder_.empty()) {
    return;
  }
  const fs::path path = fs::path(folder_) / "summary.json";
  try {
    run_(path.string(), [&] { replace_file(path, to_json(summary)); });
  } catch (const Error& error) {
    if (error.code() != ErrorCode::kIo) {
      throw;
    }
    log_warning("{}; the training is complete", error.what());
  }
}

ProgressSink Records::sink(const ProgressSink& shown) {
  ProgressSink both = shown;
  both.on_window = [this, show = shown.on_window](const WindowFigures& window) {
    add(window);
    if (show) {
      show(window);
    }
  };
  both.on_eval = [this, show = shown.on_eval](const EvalFigures& eval) {
    add(eval);
    if (show) {
      show(eval);
    }
  };
  return both;
}

std::string evaluation_name(const Summary& summary) {
  return summary.last_step > 0 ? fmt::format("eval-{:08}.json", summary.last_step) : "eval.json";
}

void write_evaluation(const std::string& folder, const Summary& summary) {
  replace_file(fs::path(folder) / evaluation_name(summary), to_json(summary));
}

}  // namespace weft::train
