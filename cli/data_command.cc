// weft data: make, convert and look at click logs.
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <string>

#include <CLI/App.hpp>
#include <fmt/core.h>
#include <unistd.h>

#include "cli/commands.h"
#include "cli/exit_code.h"
#include "cli/launch.h"
#include "cli/output.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/base/text.h"
#include "weft/base/thread_pool.h"
#include "weft/data/stats.h"
#include "weft/data/synthetic.h"
#include "weft/data/weft_format.h"
#include "weft/spec/yaml.h"

namespace weft::cli {
namespace {

struct DataOptions {
  ConfigArguments config;
  std::string out;
  std::string split = "train";
  std::string format = "text";
  std::int64_t samples = -1;
  std::int64_t hot_rows = 0;
  int threads = 0;
  bool quiet = false;
};

// How far a pass over the data is, on standard error: one line that is overwritten on a terminal,
// a plain line every ten seconds elsewhere.
class Progress {
 public:
  Progress(std::string what, bool quiet) : what_(std::move(what)), quiet_(quiet) {}

  ~Progress() { clear(); }

  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void operator()(std::int64_t done, std::int64_t total) {
    const double now = seconds();
    if (quiet_ || now - last_ < (terminal_ ? 0.2 : 10.0)) {
      return;
    }
    last_ = now;
    const double rate = static_cast<double>(done) / now;
    std::string line = fmt::format("{}: {} samples", what_, format_count(done));
    if (total > 0) {
      const auto left = static_cast<double>(total - done) / rate;
      line +=
          fmt::format(" of {} ({}%), {:.0f} s left", format_count(total), 100 * done / total, left);
    }
    line += fmt::format(", {} samples/s", format_count(static_cast<std::int64_t>(rate)));
    if (terminal_) {
      write_error("\r" + line + "\x1b[K");
      shown_ = true;
    } else {
      write_error("weft: " + line + "\n");
    }
  }

  void clear() {
    if (shown_) {
      write_error("\r\x1b[K");
      shown_ = false;
    }
  }

  [[nodiscard]] double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  }

 private:
  std::string what_;
  bool quiet_;
  bool terminal_ = ::isatty(STDERR_FILENO) == 1;
  bool shown_ = false;
  double last_ = 0.0;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

data::Split split_of(const DataOptions& options) {
  return options.split == "eval" ? data::Split::kEval : data::Split::kTrain;
}

std::unique_ptr<data::Source> open(const spec::Config& config, const DataOptions& options) {
  std::unique_ptr<data::Source> source = data::open_source(config, split_of(options));
  if (source == nullptr) {
    fail(ErrorCode::kConfig,
         "{}: the configuration has no evaluation data; set data.eval_path or data.eval_fraction, "
         "or use --split train",
         options.config.path);
  }
  return source;
}

int write(data::Source& source, const DataOptions& options, const std::string& what) {
  Progress progress(what, options.quiet);
  ThreadPool pool(options.threads > 0 ? options.threads : threads_per_rank({.ranks = 1}));
  const std::int64_t samples = data::write_weft(
      source, options.out,
      {.samples = options.samples,
       .pool = &pool,
       .progress = [&](std::int64_t done, std::int64_t total) { progress(done, total); }});
  progress.clear();
  if (!options.quiet) {
    fmt::print("{}: {} samples, {}, {:.1f} s\n", options.out, format_count(samples),
               format_bytes(std::filesystem::file_size(options.out)), progress.seconds());
  }
  return kDone;
}

int run_generate(const DataOptions& options) {
  const spec::Config config = spec::load_config(options.config.path, options.config.overrides);
  if (config.data.format != spec::DataFormat::kSynthetic) {
    fail(ErrorCode::kConfig,
         "{}: data.format is not synthetic, so there is nothing to generate; use 'weft data "
         "convert' for data that exists",
         options.config.path);
  }
  const std::unique_ptr<data::Source> source =
      data::open_synthetic(config.data, config.seed, split_of(options));
  if (options.samples > source->size()) {
    const bool eval = split_of(options) == data::Split::kEval;
    fail(ErrorCode::kUsage,
         "--samples {}: the configuration describes {} samples of the {} split; add --set "
         "data.synthetic.{}={}",
         options.samples, source->size(), options.split, eval ? "eval_samples" : "samples",
         options.samples);
  }
  return write(*source, options, "generating");
}

int run_convert(const DataOptions& options) {
  const spec::Config config = spec::load_config(options.config.path, options.config.overrides);
  const std::unique_ptr<data::Source> source = open(config, options);
  return write(*source, options, "converting");
}

int run_stats(const DataOptions& options) {
  const spec::Config config = spec::load_config(options.config.path, options.config.overrides);
  const std::unique_ptr<data::Source> source = open(config, options);
  data::StatsOptions limits;
  limits.max_samples = options.samples;
  limits.hot_rows = options.hot_rows;
  limits.config = &config;
  Progress progress("reading", options.quiet);
  const data::Stats stats = data::compute_stats(
      *source, limits, [&](std::int64_t done, std::int64_t total) { progress(done, total); });
  progress.clear();
  fmt::print("{}", options.format == "json" ? stats_json(stats) : stats_text(stats));
  for (const data::HashedTable& table : stats.hashed) {
    if (const std::string warning = warning_of(table); !warning.empty()) {
      log_warning("{}", warning);
    }
  }
  return kDone;
}

// Adds one of the three commands; returns it for the options it has alone.
CLI::App* add(CLI::App& data,
              Action& chosen,
              const std::string& name,
              const std::string& description,
              const std::shared_ptr<DataOptions>& options,
              int (*run)(const DataOptions&)) {
  CLI::App* command = data.add_subcommand(name, description);
  add_config_arguments(*command, options->config)->required();
  command->add_option("--split", options->split, "Which samples: train (default) or eval")
      ->check(CLI::IsMember({"train", "eval"}));
  command->add_option("--samples", options->samples, "Only the first N samples")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 62));
  command->add_flag("--quiet", options->quiet, "No progress, no closing line");
  command->callback([options, &chosen, run] { chosen = [options, run] { return run(*options); }; });
  return command;
}

void add_out(CLI::App* command, DataOptions& options) {
  command->add_option("--out", options.out, "The file to write, in weft format")
      ->type_name("FILE")
      ->required();
  command->add_option("--threads", options.threads, "Threads; default: the cores")
      ->type_name("N")
      ->check(CLI::Range(1, 4096));
}

}  // namespace

void add_data_command(CLI::App& app, Action& chosen) {
  CLI::App* data = app.add_subcommand("data", "Make, convert and look at click logs");
  data->require_subcommand(1);
  auto generate = std::make_shared<DataOptions>();
  add_out(add(*data, chosen, "generate", "Write a generated click log (data.format: synthetic)",
              generate, run_generate),
          *generate);
  auto convert = std::make_shared<DataOptions>();
  add_out(add(*data, chosen, "convert", "Write the configured data, of any format, in weft format",
              convert, run_convert),
          *convert);
  auto stats = std::make_shared<DataOptions>();
  CLI::App* const command =
      add(*data, chosen, "stats", "Print lengths, cardinalities, skew and missing rates", stats,
          run_stats);
  command->add_option("--format", stats->format, "text (default) or json")
      ->check(CLI::IsMember({"text", "json"}));
  command->add_option("--hot-rows", stats->hot_rows, "Also the N most frequent rows of each table")
      ->type_name("N")
      ->check(CLI::Range(std::int64_t{1}, std::int64_t{1} << 24));
}

}  // namespace weft::cli
