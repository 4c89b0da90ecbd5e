// Arguments, launching, progress and the report of a job.
#include "cli/job.h"

#include <atomic>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <system_error>

#include <fmt/format.h>
#include <unistd.h>

#include "cli/exit_code.h"
#include "cli/launch.h"
#include "cli/metrics_server.h"
#include "cli/output.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/spec/yaml.h"

namespace weft::cli {
namespace {

std::string figure(double value, int digits) {
  return std::isfinite(value) ? fmt::format("{:.{}f}", value, digits) : std::string("-");
}

/// Shows progress: one line that is rewritten on a terminal, plain lines elsewhere.
class ProgressPrinter {
 public:
  explicit ProgressPrinter(bool quiet) : quiet_(quiet), terminal_(isatty(STDERR_FILENO) == 1) {}

  /// `mark`: what every line of figures begins with.
  train::ProgressSink sink(const std::string& mark) {
    mark_ = mark;
    if (quiet_) {
      return {};
    }
    return {.on_window = [this](const train::WindowFigures& window) { show(window); },
            .on_eval = [this](const train::EvalFigures& eval) { show(eval); },
            .on_note = [this](const std::string& note) { line(note); }};
  }

  /// Ends a line that was being rewritten.
  void close() {
    if (open_) {
      write_error("\n");
      open_ = false;
    }
  }

 private:
  void show(const train::WindowFigures& window) {
    const train::TaskFigures& task = window.tasks.front();
    std::string text =
        fmt::format("{}step {}{}  loss {}  NE {} (run {})  {} samples/s", mark_, window.step,
                    window.total_steps > 0 ? fmt::format("/{}", window.total_steps) : "",
                    figure(task.loss, 5), figure(task.ne, 5), figure(window.lifetime_ne.front(), 5),
                    format_count(std::llround(window.samples_per_s)));
    text += "  " + window.breakdown.text();
    if (window.eta_s >= 0) {
      text += fmt::format("  ETA {:.0f} s", window.eta_s);
    }
    if (!terminal_) {
      line(text);
      return;
    }
    write_error("\r\033[K" + text);
    open_ = true;
  }

  void show(const train::EvalFigures& eval) {
    for (const train::TaskFigures& task : eval.tasks) {
      line(fmt::format("evaluation at step {}, {}: NE {}  AUC {}  calibration {}  {} samples",
                       eval.step, task.task, figure(task.ne, 5), figure(task.auc, 5),
                       figure(task.calibration, 4), format_count(task.samples)));
    }
  }

  void line(const std::string& text) {
    close();
    write_error(text + "\n");
  }

  std::string mark_;
  bool quiet_;
  bool terminal_;
  bool open_ = false;
};

void print_eval(const train::EvalFigures& eval) {
  const train::TaskFigures& task = eval.tasks.front();
  if (eval.bayes_ne) {
    const double closed = (1 - task.ne) / (1 - *eval.bayes_ne);
    fmt::print("  evaluation NE      {}   (best possible {}: {:.1f} % of the gap closed)\n",
               figure(task.ne, 4), figure(*eval.bayes_ne, 4), 100 * closed);
  } else {
    fmt::print("  evaluation NE      {}\n", figure(task.ne, 4));
  }
  fmt::print("  evaluation AUC     {}\n", figure(task.auc, 4));
}

void print_report(const train::Summary& summary, const JobArguments& arguments) {
  fmt::print("\n");
  if (!summary.skipped_stages.empty()) {
    fmt::print("  NOT TRAINED        debug.skip: {}; only times mean anything\n",
               fmt::join(summary.skipped_stages, ", "));
  }
  if (summary.eval) {
    print_eval(*summary.eval);
  }
  if (summary.steps > 0) {
    fmt::print("  training NE        {}   (last {} samples; {} over the run)\n",
               figure(summary.window.front().ne, 4), format_count(summary.window_samples),
               figure(summary.lifetime_ne.front(), 4));
    fmt::print("  samples/s          {}   ({} samples in {:.1f} s on {} ranks of {} threads)\n",
               format_count(std::llround(static_cast<double>(summary.samples) / summary.train_s)),
               format_count(summary.samples), summary.train_s, summary.ranks, summary.threads);
  }
  const auto bytes = [](std::int64_t count) {
    return format_bytes(static_cast<std::uint64_t>(count));
  };
  fmt::print("  memory             {}   (at most, of a process; tables on all ranks {})\n",
             bytes(summary.peak_rss_bytes), bytes(summary.memory.tables));
  if (summary.skipped_stages.empty()) {
    fmt::print("  weights hash       {:016x}   state hash {:016x}\n", summary.weights_hash,
               summary.state_hash);
  }
  if (!arguments.out.empty()) {
    fmt::print("  artefacts          {}/ (config.yaml plan.yaml summary.json metrics.jsonl)\n",
               arguments.out);
  }
  if (!arguments.checkpoint.empty()) {
    fmt::print("  checkpoints        {}/\n", arguments.checkpoint);
  }
  if (!arguments.trace.empty()) {
    fmt::print("  trace              {}/ (one file per rank, for Perfetto)\n", arguments.trace);
  }
}

[[noreturn]] void fail_summary(const std::string& path) {
  fail(ErrorCode::kIo, "cannot write --summary {}; check the folder and its permissions", path);
}

/// Finds out before the training whether the summary can be written; changes nothing.
void check_summary(const std::string& path) {
  std::error_code unreadable;
  const auto type = std::filesystem::symlink_status(path, unreadable).type();
  if (path.empty() || type == std::filesystem::file_type::fifo ||
      type == std::filesystem::file_type::character) {
    return;
  }
  if (!std::ofstream(path, std::ios::app)) {
    fail_summary(path);
  }
  if (type == std::filesystem::file_type::not_found) {
    std::filesystem::remove(path, unreadable);
  }
}

void write_summary(const std::string& path, const train::Summary& summary) {
  std::ofstream out(path, std::ios::trunc);
  out << train::to_json(summary);
  out.flush();
  if (!out) {
    fail_summary(path);
  }
}

/// What rank 0 tells at the end. Under a launcher the other processes still wait here: they end
/// with the same code, and a code other than 0 of any would have the launcher end this one in its
/// midst.
void report(ProgressPrinter& printer,
            const JobArguments& arguments,
            const train::Summary& summary) {
  printer.close();
  if (!arguments.summary.empty()) {
    write_summary(arguments.summary, summary);
  }
  if (!arguments.quiet) {
    print_report(summary, arguments);
  }
  flush_output();
}

/// What `sink` does, and the figures to `server`.
train::ProgressSink served_too(const train::ProgressSink& sink, MetricsServer& server) {
  train::ProgressSink both = sink;
  both.on_window = [&server, show = sink.on_window](const train::WindowFigures& window) {
    server.set(window);
    if (show) {
      show(window);
    }
  };
  both.on_eval = [&server, show = sink.on_eval](const train::EvalFigures& eval) {
    server.set(eval);
    if (show) {
      show(eval);
    }
  };
  return both;
}

/// "FIRST:LAST", steps of the job counted from 1, both included.
Range parse_steps(const std::string& text) {
  const char* const end = text.data() + text.size();
  std::int64_t first = 0;
  std::int64_t last = 0;
  const auto [colon, bad_first] = std::from_chars(text.data(), end, first);
  if (bad_first == std::errc() && colon != end && *colon == ':') {
    const auto [stop, bad_last] = std::from_chars(colon + 1, end, last);
    if (bad_last == std::errc() && stop == end && 1 <= first && first <= last &&
        last < std::numeric_limits<std::int64_t>::max()) {
      return {first, last + 1};
    }
  }
  fail(ErrorCode::kUsage, "--trace-steps {}: say FIRST:LAST, two steps counted from 1", text);
}

train::TraceOptions trace_options(const JobArguments& arguments) {
  if (arguments.trace_steps.empty()) {
    return {.folder = arguments.trace, .steps = {}};
  }
  if (arguments.trace.empty()) {
    fail(ErrorCode::kUsage, "--trace-steps needs --trace DIR");
  }
  return {.folder = arguments.trace, .steps = parse_steps(arguments.trace_steps)};
}

}  // namespace

int run_job(const JobArguments& arguments, RunFunction run) {
  if (arguments.quiet) {
    set_log_level(LogLevel::kWarning);
  }
  train::JobOptions options;
  options.config = spec::load_config(arguments.config.path, arguments.config.overrides);
  LaunchOptions launching{.ranks = arguments.ranks, .timeout_s = options.config.train.timeout_s};
  const spec::Mesh& mesh = options.config.mesh;
  if (run == train::run_train && mesh.sync_every > 1 && mesh.groups > 1) {
    launching.stops =
        fmt::format("at the next sync, a step that is a multiple of {}", mesh.sync_every);
  } else if (run == train::run_train && mesh.sync_every != 1 && mesh.groups != 1) {
    launching.stops = "at the next sync, where replica groups have one";
  }
  options.threads = arguments.threads > 0 ? arguments.threads : threads_per_rank(launching);
  options.out_dir = arguments.out;
  options.plan_file = arguments.plan;
  options.cluster_file = arguments.cluster;
  options.stats_file = arguments.stats;
  options.checkpoint_dir = arguments.checkpoint;
  options.checkpoint_every = arguments.checkpoint_every;
  options.checkpoint_keep = arguments.checkpoint_keep;
  options.resume = arguments.resume;
  options.trace = trace_options(arguments);
  options.tensorboard_dir = arguments.tensorboard;
  if (arguments.checkpoint_every > 0 && arguments.checkpoint.empty()) {
    fail(ErrorCode::kUsage, "--checkpoint-every needs --checkpoint DIR");
  }
  ProgressPrinter printer(arguments.quiet);
  const train::ProgressSink shown =
      printer.sink(options.config.debug.skip.empty() ? "" : "NOT TRAINING  ");
  std::unique_ptr<MetricsServer> server;  // on rank 0
  std::atomic<bool> stopped = false;      // the same on all ranks
  launch(launching, [&](comm::Communicator& world, const std::atomic<bool>& stop) {
    train::JobOptions own = options;
    own.stop = &stop;
    own.progress = shown;
    if (world.rank() == 0) {
      check_summary(arguments.summary);
      if (arguments.metrics_port >= 0) {
        server = std::make_unique<MetricsServer>(arguments.metrics_port);
        log_info("figures for Prometheus at port {}, path /metrics", server->port());
        own.progress = served_too(shown, *server);
      }
    }
    const train::Summary result = run(world, own);
    stopped = result.stopped;
    if (world.rank() == 0) {
      report(printer, arguments, result);
    }
  });
  return stopped ? kStopped : kDone;
}

void add_job_arguments(CLI::App& command, JobArguments& arguments) {
  add_config_arguments(command, arguments.config)->required();
  command
      .add_option("--ranks", arguments.ranks,
                  "Ranks, as threads of this process (under mpirun: leave out)")
      ->check(CLI::Range(1, 4096));
  command.add_option("--threads", arguments.threads, "Threads per rank; default: cores / ranks")
      ->check(CLI::Range(1, 1024));
  command.add_option("--summary", arguments.summary, "Write the summary as JSON to FILE")
      ->check(not_empty());
  command
      .add_option("--out", arguments.out,
                  "Folder for resolved config, plan, summary and metrics.jsonl")
      ->check(not_empty());
  CLI::Option* const plan =
      command.add_option("--plan", arguments.plan, "Use this plan instead of making one");
  plan->check(not_empty());
  command
      .add_option("--cluster", arguments.cluster,
                  "Make a plan for this cluster, as weft plan does (docs/planner.md)")
      ->check(not_empty())
      ->excludes(plan);
  command
      .add_option("--stats", arguments.stats,
                  "Plan by what weft data stats --format json says of the data; tables with "
                  "hot_rows need its --hot-rows")
      ->check(not_empty())
      ->excludes(plan);
  command.add_option("--resume", arguments.resume, "A checkpoint, or the folder of some")
      ->check(not_empty());
  command.add_flag("--quiet", arguments.quiet, "No progress and no report");
}

}  // namespace weft::cli
