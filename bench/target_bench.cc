// Products of fp32 and of bf16 at every target: no type may be a cliff. Each target is measured in
// a process of its own, under oneDNN's limit; those that the machine lacks are not printed twice.
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/base/error.h"
#include "weft/kernels/cpu/elementwise.h"
#include "weft/kernels/cpu/matmul.h"
#include "weft/kernels/target.h"
#include "weft/tensor/host_block.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  int rounds = 5;
  double budget_s = 0.2;
  bool is_child = false;
};

struct Shape {
  std::int64_t m, k, n;
};

// A slice of samples by a layer, a few samples by one, and a tile of a weight gradient.
constexpr std::array kShapes = {Shape{256, 512, 512}, Shape{32, 512, 256}, Shape{256, 256, 512}};
constexpr std::array kLimits = {"SSE41", "AVX2", "AVX512_CORE", "AVX512_CORE_BF16",
                                "AVX512_CORE_AMX"};

/// The CPU time of this thread, which runs a product alone: what others do on the machine does not
/// count.
double cpu_seconds() {
  std::timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// GFLOP/s of one thread, bf16 into bf16.
double speed(DType dtype, const Shape& shape, double budget_s) {
  const auto operand = [dtype](HostBlock& memory, std::int64_t rows, std::int64_t cols) {
    kernels::Operand made;
    made.data = memory.at_least(rows * cols * size_of(dtype));
    made.dtype = dtype;
    made.rows = rows;
    made.cols = made.stride = cols;
    return made;
  };
  HostBlock memory[3];
  const std::vector<float> values(static_cast<std::size_t>(shape.k * std::max(shape.m, shape.n)),
                                  0.01F);
  const kernels::Operand x = operand(memory[0], shape.m, shape.k);
  const kernels::Operand y = operand(memory[1], shape.m, shape.n);
  kernels::assign(matrix(values.data(), shape.m, shape.k), x);
  const kernels::PackedMatrix w = kernels::packed_matrix(
      dtype, shape.k, shape.n, memory[2].at_least(kernels::packed_bytes(dtype, shape.k, shape.n)));
  kernels::pack(matrix(values.data(), shape.k, shape.n), w, {0, w.panels()});
  kernels::Matmul matmul;
  matmul.multiply(x, w, y);  // makes the primitive
  std::vector<double> passes;
  for (const double begin = cpu_seconds(); cpu_seconds() < begin + budget_s || passes.size() < 3;) {
    const double start = cpu_seconds();
    matmul.multiply(x, w, y);
    passes.push_back(cpu_seconds() - start);
  }
  const double seconds = median(std::move(passes));
  return 2e-9 * static_cast<double>(shape.m * shape.k * shape.n) / seconds;
}

/// Lines for the parent: target, shape, type, GFLOP/s. Types take turns.
void measure(const Options& options) {
  const auto target = to_string(kernels::current_target());
  for (int round = 0; round < options.rounds; ++round) {
    for (const Shape& shape : kShapes) {
      for (const DType dtype : {DType::kFloat32, DType::kBFloat16}) {
        fmt::print("{} {}x{}x{} {} {}\n", target, shape.m, shape.k, shape.n, to_string(dtype),
                   speed(dtype, shape, options.budget_s));
      }
    }
  }
}

using Key = std::array<std::string, 3>;  // target, shape, type

/// Runs this program under the limit and returns what it prints.
std::map<Key, std::vector<double>> measure_under(const std::string& limit, const Options& options) {
  if (setenv("ONEDNN_MAX_CPU_ISA", limit.c_str(), 1) != 0) {
    fail(ErrorCode::kIo, "setting ONEDNN_MAX_CPU_ISA to {}", limit);
  }
  const std::string command = fmt::format("/proc/{}/exe --child --rounds {} --probe-seconds {}",
                                          getpid(), options.rounds, options.budget_s);
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> pipe(popen(command.c_str(), "r"), pclose);
  if (pipe == nullptr) {
    fail(ErrorCode::kIo, "starting '{}'", command);
  }
  std::map<Key, std::vector<double>> values;
  std::array<char, 64> target{}, shape{}, type{};
  double value = 0.0;
  while (std::fscanf(pipe.get(), "%63s %63s %63s %lf", target.data(), shape.data(), type.data(),
                     &value) == 4) {
    values[{target.data(), shape.data(), type.data()}].push_back(value);
  }
  if (values.empty()) {
    fail(ErrorCode::kIo, "'{}' measured nothing", command);
  }
  return values;
}

void run(const Options& options) {
  std::vector<Figure> figures;
  std::string last;
  for (const std::string limit : kLimits) {
    const std::map<Key, std::vector<double>> values = measure_under(limit, options);
    if (values.begin()->first[0] == last) {
      break;  // the machine has no more
    }
    last = values.begin()->first[0];
    for (const auto& [key, measured] : values) {
      const auto& [target, shape, type] = key;
      Figure figure{.name = "product",
                    .parameters = {{"target", target}, {"shape", shape}, {"type", type}},
                    .unit = "GFLOP/s",
                    .better = Better::kHigher,
                    .values = measured,
                    .limit = {}};
      if (type != to_string(DType::kFloat32)) {
        const Key fp32 = {target, shape, std::string(to_string(DType::kFloat32))};
        figure.limit = Limit{"fp32 of the same target", values.at(fp32)};
      }
      figures.push_back(std::move(figure));
    }
  }
  fmt::print("{}", to_text(figures));
  if (!options.out.empty()) {
    write_json(options.out, "target", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Measures products of fp32 and bf16 at every target of this machine");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.rounds, "Repetitions").within(1, 1000);
  arguments.add("--probe-seconds", options.budget_s, "How long one product is measured");
  arguments.add_flag("--child", options.is_child, "Measure the target in force");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    if (options.is_child) {
      weft::bench::measure(options);
    } else {
      weft::bench::run(options);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "target_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
