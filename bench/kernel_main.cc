#include "bench/kernel_main.h"

#include <algorithm>
#include <cstdio>
#include <exception>
#include <vector>

#include <fmt/core.h>

#include "bench/report.h"

namespace weft::bench {
namespace {

/// "lookup/dim:16/threads:2/real_time" -> name "lookup", parameters dim = 16, threads = 2.
Figure figure_of(const std::string& run_name) {
  Figure figure;
  std::size_t begin = 0;
  while (begin <= run_name.size()) {
    const std::size_t end = std::min(run_name.find('/', begin), run_name.size());
    const std::string piece = run_name.substr(begin, end - begin);
    const std::size_t colon = piece.find(':');
    if (begin == 0) {
      figure.name = piece;
    } else if (colon != std::string::npos) {
      figure.parameters[piece.substr(0, colon)] = piece.substr(colon + 1);
    } else if (piece != "real_time") {
      figure.parameters[piece] = "";
    }
    begin = end + 1;
  }
  return figure;
}

/// Google Benchmark's table, and beside it the figures with their limits.
class Reporter final : public benchmark::ConsoleReporter {
 public:
  Reporter() : ConsoleReporter(OO_Tabular) {}

  void ReportRuns(const std::vector<Run>& runs) override {
    for (const Run& run : runs) {
      if (run.error_occurred) {
        failed_ = true;
        std::fprintf(stderr, "%s: %s\n", run.benchmark_name().c_str(), run.error_message.c_str());
      } else if (run.run_type == Run::RT_Iteration) {
        add(run);
      }
    }
  }

  [[nodiscard]] bool failed() const { return failed_; }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  void add(const Run& run) {
    const std::string& name = run.run_name.str();
    std::size_t at = 0;
    while (at < names_.size() && names_[at] != name) {
      ++at;
    }
    if (at == names_.size()) {
      names_.push_back(name);
      figures_.push_back(figure_of(name));
    }
    Figure& figure = figures_[at];
    const auto rate = run.counters.find("rate");
    if (rate == run.counters.end()) {
      figure.unit = "ns";
      figure.better = Better::kLower;
      figure.values.push_back(run.GetAdjustedRealTime());
      return;
    }
    figure.values.push_back(rate->second.value);
    const std::size_t tab = run.report_label.find('\t');
    figure.unit = run.report_label.substr(0, tab);
    const auto limit = run.counters.find("limit");
    if (limit != run.counters.end()) {
      figure.limit = figure.limit.value_or(Limit{run.report_label.substr(tab + 1), {}});
      figure.limit->values.push_back(limit->second.value);
    }
  }

  std::vector<std::string> names_;
  std::vector<Figure> figures_;
  bool failed_ = false;
};

bool quick_run = false;  // as main() was asked for; the benchmarks' functions take no arguments

/// Our own arguments, and those left for Google Benchmark behind our defaults.
struct Arguments {
  std::string out;
  std::vector<std::string> others;
};

Arguments parse(int argc, char** argv) {
  Arguments parsed;
  std::vector<std::string> given;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--quick") {
      quick_run = true;
    } else if (argument == "--out" && i + 1 < argc) {
      parsed.out = argv[++i];
    } else {
      given.push_back(argument);
    }
  }
  parsed.others = {argv[0], "--benchmark_enable_random_interleaving=true",
                   quick_run ? "--benchmark_repetitions=1" : "--benchmark_repetitions=5"};
  if (quick_run) {
    parsed.others.emplace_back("--benchmark_min_time=0.001");
  }
  parsed.others.insert(parsed.others.end(), given.begin(), given.end());
  return parsed;
}

}  // namespace

std::int64_t bytes_of_run(std::int64_t bytes) {
  return quick_run ? bytes / 128 : bytes;
}

double probe_seconds() {
  return quick_run ? 0.001 : 0.1;
}

std::int64_t row_memory_bytes() {
  return bytes_of_run(std::int64_t{1} << 31);
}

void report_rate(benchmark::State& state, const Rate& rate) {
  state.counters["rate"] =
      benchmark::Counter(rate.work, benchmark::Counter::kIsIterationInvariantRate);
  if (!rate.limit_name.empty()) {
    state.counters["limit"] = rate.limit;
  }
  state.SetLabel(rate.unit + "\t" + rate.limit_name);
}

int run_kernels(const std::string& program, int argc, char** argv) {
  Arguments own = parse(argc, argv);
  std::vector<char*> arguments;
  for (std::string& argument : own.others) {
    arguments.push_back(argument.data());
  }
  arguments.push_back(nullptr);
  auto count = static_cast<int>(own.others.size());
  benchmark::Initialize(&count, arguments.data());
  if (benchmark::ReportUnrecognizedArguments(count, arguments.data())) {
    return 2;
  }
  try {
    Reporter reporter;
    benchmark::RunSpecifiedBenchmarks(&reporter);
    fmt::print("{}", to_text(reporter.figures()));
    if (!own.out.empty()) {
      write_json(own.out, program, reporter.figures());
    }
    return reporter.failed() ? 1 : 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s: %s\n", program.c_str(), error.what());
    return 1;
  }
}

}  // namespace weft::bench
