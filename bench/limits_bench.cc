// The machine's limits themselves, for docs/performance.md: memory from end to end, random rows,
// matrix products.
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/limits.h"
#include "bench/machine.h"
#include "bench/report.h"
#include "weft/tensor/device.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  int rounds = 5;
  double budget_s = 0.2;  // of one probe
  double memory_gib = 4.0;
};

constexpr double kGiga = 1e9;

/// One probe of one number of threads.
struct Probe {
  Figure figure;
  std::function<double()> run;
};

std::vector<Probe> make_probes(Limits& limits, const std::string& threads) {
  std::vector<Probe> probes;
  const auto add = [&](std::string name, std::map<std::string, std::string> parameters,
                       std::string unit, std::function<double()> run) {
    parameters["threads"] = threads;
    probes.push_back({{.name = std::move(name),
                       .parameters = std::move(parameters),
                       .unit = std::move(unit),
                       .better = Better::kHigher,
                       .values = {},
                       .limit = {}},
                      std::move(run)});
  };
  constexpr std::int64_t kLarge = std::int64_t{1} << 30;
  add("copy", {}, "GB/s", [&] { return limits.copy_bytes_per_s(kLarge) / kGiga; });
  add("read", {}, "GB/s", [&] { return limits.read_bytes_per_s(kLarge) / kGiga; });
  for (const std::int64_t bytes : {64, 128, 256, 512, 1024}) {
    const std::string text = std::to_string(bytes);
    add("gather", {{"row_bytes", text}}, "Mrow/s",
        [&limits, bytes] { return limits.random_rows_per_s(bytes, RowAccess::kGather) / 1e6; });
    add("gather_scatter", {{"row_bytes", text}}, "Mrow/s", [&limits, bytes] {
      return limits.random_rows_per_s(bytes, RowAccess::kGatherScatter) / 1e6;
    });
  }
  for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
    const GemmShape shape{.m = 1024, .n = 1024, .k = 1024, .in = dtype, .out = dtype};
    add("gemm", {{"dtype", std::string(to_string(dtype))}, {"shape", "1024x1024x1024"}}, "GFLOP/s",
        [&limits, shape] { return limits.gemm_flops_per_s(shape) / kGiga; });
  }
  return probes;
}

/// All probes with this many threads, one after the other in every round.
std::vector<Figure> measure(const Options& options, std::int64_t threads) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = static_cast<int>(threads)});
  Limits limits(*device, {.memory_bytes = static_cast<std::int64_t>(options.memory_gib * (1 << 30)),
                          .budget_s = options.budget_s,
                          .align = {}});
  std::vector<Probe> probes = make_probes(limits, std::to_string(threads));
  for (int round = 0; round < options.rounds; ++round) {
    for (Probe& probe : probes) {
      probe.figure.values.push_back(probe.run());
    }
  }
  std::vector<Figure> figures;
  for (Probe& probe : probes) {
    figures.push_back(std::move(probe.figure));
  }
  return figures;
}

void run(const Options& options) {
  const std::int64_t cores = this_machine().cores;
  std::vector<Figure> figures = measure(options, 1);
  if (cores > 1) {
    for (Figure& figure : measure(options, cores)) {
      figures.push_back(std::move(figure));
    }
  }
  fmt::print("{}", to_text(figures));
  if (!options.out.empty()) {
    write_json(options.out, "limits", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments("Measures what this machine can do");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.rounds, "Repetitions of every probe").within(1, 1000);
  arguments.add("--probe-seconds", options.budget_s, "How long a probe measures");
  arguments.add("--memory-gib", options.memory_gib, "Memory that random rows lie in")
      .within(0.01, 4096.0);
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "limits_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
