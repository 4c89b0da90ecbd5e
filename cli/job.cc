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

#include "cli/exit_code.h"
#include "cli/launch.h"
#include "cli/metrics_server.h"
#include "cli/output.h"
#include "cli/progress_line.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/spec/yaml.h"
#include "weft/train/checkpoint_folder.h"
#include "weft/train/records.h"

namespace weft::cli {
namespace {

/// Of tables whose rows are not all in memory.
void print_tiers(const train::TierFigures& tiers) {
  storage::TierCounts all;
  for (const train::TableTier& one : tiers.tables) {
    all.asked += one.counts.asked;
    all.hits += one.counts.hits;
    all.read += one.counts.read;
    all.made += one.counts.made;
    all.written += one.counts.written;
  }
  if (all.asked == 0) {
    return;
  }
  fmt::print(
      "  rows               {:.1f} % of {} asked for had a slot, {} were read, {} made, {} "
      "written back\n",
      100.0 * static_cast<double>(all.hits) / static_cast<double>(all.asked),
      format_count(all.asked), format_count(all.read), format_count(all.made),
      format_count(all.written));
}

void print_eval(const train::EvalFigures& eval) {
  const train::TaskFigures& task = eval.tasks.front();
  if (eval.bayes_ne) {
    const double closed = (1 - task.ne) / (1 - *eval.bayes_ne);
    fmt::print("  evaluation NE      {}   (best possible {}: {})\n", figure(task.ne, 4),
               figure(*eval.bayes_ne, 4),
               closed > 0 ? fmt::format("{:.1f} % of the gap closed", 100 * closed)
                          : "no better yet than predicting the mean");
  } else {
    fmt::print("  evaluation NE      {}\n", figure(task.ne, 4));
  }
  fmt::print("  evaluation AUC     {}\n", figure(task.auc, 4));
}

void print_report(const train::Summary& summary, const JobArguments& arguments, RunFunction run) {
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
    fmt::print("  samples/s          {}   ({} samples in {:.1f} s on {} of {})\n",
               format_count(std::llround(static_cast<double>(summary.samples) / summary.train_s)),
               format_count(summary.samples), summary.train_s, counted(summary.ranks, "rank"),
               counted(summary.threads, "thread"));
  }
  if (run == train::run_train) {
    fmt::print("  schedule           {}\n", describe(summary.pipeline));
  }
  const auto bytes = [](std::int64_t count) {
    return format_bytes(static_cast<std::uint64_t>(count));
  };
  fmt::print("  memory             {}   (at most, of a process; tables on all ranks {})\n",
             bytes(summary.peak_rss_bytes), bytes(summary.memory.tables));
  print_tiers(summary.tiers);
  if (summary.skipped_stages.empty()) {
    fmt::print("  weights hash       {:016x}   state hash {:016x}\n", summary.weights_hash,
               summary.state_hash);
  }
  if (!arguments.out.empty()) {
    fmt::print("  artefacts          {}/ ({})\n", arguments.out,
               run == train::run_train ? "config.yaml plan.yaml summary.json metrics.jsonl"
                                       : train::evaluation_name(summary));
  }
  if (!arguments.checkpoint.empty()) {
    fmt::print("  checkpoints        {}/\n", arguments.checkpoint);
  }
  const train::LostRecords& lost = summary.lost;
  if (lost.metrics + lost.events + lost.traces + lost.checkpoints > 0) {
    fmt::print("  not written        {} lines of metrics, {} events, {} traces, {} checkpoints\n",
               lost.metrics, lost.events, lost.traces, lost.checkpoints);
  }
  if (!arguments.trace.empty()) {
    fmt::print("  trace              {}/ (one file per rank, for Perfetto)\n", arguments.trace);
  }
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
    fail(ErrorCode::kIo, "cannot write --summary {}; check the folder and its permissions", path);
  }
  if (type == std::filesystem::file_type::not_found) {
    std::filesystem::remove(path, unreadable);
  }
}

/// A figure that a training loses is no error: model and checkpoints are there. An evaluation
/// has nothing else.
void write_summary(const std::string& path, const train::Summary& summary, RunFunction run) {
  try {
    train::replace_file(path, train::to_json(summary));
  } catch (const Error& error) {
    if (run != train::run_train) {
      throw;
    }
    log_warning("--summary: {}; the training is complete", error.what());
  }
}

/// Says where. A port that the system chose is said to those, too, who want no notes.
std::unique_ptr<MetricsServer> serve_figures(const JobArguments& arguments) {
  auto server = std::make_unique<MetricsServer>(
      ListenAddress{.host = arguments.metrics_address, .port = arguments.metrics_port});
  const std::string where = fmt::format("figures for Prometheus at port {} of {}, path /metrics",
                                        server->port(), arguments.metrics_address);
  if (arguments.quiet && arguments.metrics_port == 0) {
    write_error(fmt::format("weft: {}\n", where));
  } else {
    log_info("{}", where);
  }
  return server;
}

/// Rank 0 reports at the end. Under a launcher the other processes still wait here: they end
/// with the same code, and a code other than 0 of any would have the launcher end this one in its
/// midst.
void report(const JobArguments& arguments, const train::Summary& summary, RunFunction run) {
  if (!arguments.summary.empty()) {
    write_summary(arguments.summary, summary, run);
  }
  if (!arguments.quiet) {
    print_report(summary, arguments, run);
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

/// "same", "from-start" or "insist"; empty means the first.
train::ResumeData resume_data(const JobArguments& arguments) {
  if (!arguments.resume_data.empty() && arguments.resume.empty()) {
    fail(ErrorCode::kUsage, "--resume-data needs --resume DIR");
  }
  if (arguments.resume_data == "from-start") {
    return train::ResumeData::kFromStart;
  }
  return arguments.resume_data == "insist" ? train::ResumeData::kInsist : train::ResumeData::kSame;
}

/// Options of checkpoints that mean nothing without others.
void check_checkpoint_options(const JobArguments& arguments) {
  if (arguments.checkpoint_every > 0 && arguments.checkpoint.empty()) {
    fail(ErrorCode::kUsage, "--checkpoint-every needs --checkpoint DIR");
  }
  if (arguments.checkpoint_background && arguments.checkpoint_every == 0) {
    fail(ErrorCode::kUsage, "--checkpoint-background needs --checkpoint-every N");
  }
  if (arguments.checkpoint_max_age > 0 && arguments.checkpoint_every == 0) {
    fail(ErrorCode::kUsage, "--checkpoint-max-age needs --checkpoint-every N");
  }
  if (arguments.checkpoint_keep > 0 && arguments.checkpoint.empty()) {
    fail(ErrorCode::kUsage, "--checkpoint-keep needs --checkpoint DIR");
  }
}

}  // namespace

int run_job(const JobArguments& arguments, RunFunction run) {
  if (arguments.quiet) {
    set_log_level(LogLevel::kWarning);
  }
  train::JobOptions options;
  // A job may go on with the config.yaml that an earlier build has written.
  options.config = spec::load_config(
      arguments.config.path, arguments.config.overrides,
      arguments.resume.empty() ? spec::WrittenBy::kUser : spec::WrittenBy::kEarlierBuild);
  LaunchOptions launching{.ranks = arguments.ranks,
                          .hosts = arguments.hosts,
                          .timeout_s = options.config.train.timeout_s};
  launching.command =
      fmt::format("weft {} {}", run == train::run_train ? "train" : "eval", arguments.config.path);
  check_launch(launching);
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
  options.checkpoint_background = arguments.checkpoint_background;
  options.checkpoint_max_age = arguments.checkpoint_max_age;
  if (arguments.ignore_memory_limits) {
    options.on_shortage = train::Shortage::kWarn;
  }
  options.resume = arguments.resume;
  options.resume_data = resume_data(arguments);
  options.trace = trace_options(arguments);
  options.tensorboard_dir = arguments.tensorboard;
  check_checkpoint_options(arguments);
  if (arguments.resume == train::kResumeAuto && arguments.checkpoint.empty()) {
    fail(
        ErrorCode::kUsage,
        "--resume auto is for weft train with --checkpoint DIR, whose newest it takes; without "
        "that name a checkpoint, or a folder whose newest is meant (a folder called auto: ./auto)");
  }
  std::optional<ProgressLine> shown;
  train::ProgressSink sink;
  if (!arguments.quiet) {
    shown.emplace(options.config.debug.skip.empty() ? "" : "NOT TRAINING  ");
    sink = shown->sink();
  }
  std::unique_ptr<MetricsServer> server;  // on rank 0
  std::atomic<bool> stopped = false;      // the same on all ranks
  launch(launching, [&](comm::Communicator& world, const std::atomic<bool>& stop) {
    train::JobOptions own = options;
    own.stop = &stop;
    own.progress = sink;
    if (world.rank() == 0) {
      check_summary(arguments.summary);
      if (arguments.metrics_port >= 0) {
        server = serve_figures(arguments);
        own.progress = served_too(sink, *server);
      }
    }
    const train::Summary result = run(world, own);
    stopped = result.stopped;
    if (world.rank() == 0) {
      shown.reset();
      report(arguments, result, run);
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
  command
      .add_option("--hosts", arguments.hosts,
                  "With --ranks: ranks on each host, as 8,8,4. The threads stay here, but plan and "
                  "exchanges are as between hosts")
      ->delimiter(',')
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
  command
      .add_option("--resume", arguments.resume,
                  "A checkpoint, or the folder of some; auto: the newest of --checkpoint, if any")
      ->check(not_empty());
  command.add_flag("--ignore-memory-limits", arguments.ignore_memory_limits,
                   "Start although tables and optimizer state exceed the memory there is");
  command.add_flag("--quiet", arguments.quiet, "No progress and no report");
}

}  // namespace weft::cli
