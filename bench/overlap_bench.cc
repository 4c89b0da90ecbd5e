// Does an exchange beside a dense stage cost nothing but the longer of the two?
//
// A round is one dense stage (products of a linear layer, about --compute-ms alone) and one
// all-to-all of --bytes per peer. Each repetition times --rounds rounds of the stage alone, of the
// exchange alone, of both in turn on one stream, and of both at once on two, where each round
// begins when both have ended. Run it under mpirun across hosts: lab/lab mpi runs it across
// emulated ones, one rank per host. Where a communication thread spins, the two do not overlap on
// a busy machine; Weft's blocks.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/kernels/cpu/matmul.h"
#include "weft/tensor/buffer.h"
#include "weft/tensor/stream.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kWidth = 1024;
constexpr std::int64_t kRows = 256;

struct Options {
  std::string out;
  int ranks = 2;  // without mpirun
  int repetitions = 7;
  int rounds = 8;
  double compute_ms = 60;
  std::int64_t bytes = 1'000'000;
};

/// Products of a layer of 1024 to 1024.
class DenseStage {
 public:
  explicit DenseStage(Device& device)
      : input_(device, kRows * kWidth * 4),
        weights_(device, kernels::packed_bytes(DType::kFloat32, kWidth, kWidth)),
        output_(device, kRows * kWidth * 4) {
    std::fill_n(input_.as<float>(), kRows * kWidth, 0.5F);
    const std::vector<float> weights(kWidth * kWidth, 0.001F);
    packed_ = kernels::packed_matrix(DType::kFloat32, kWidth, kWidth, weights_.as<void>());
    kernels::pack(matrix(weights.data(), kWidth, kWidth), packed_, {0, packed_.panels()});
  }

  void run(std::int64_t products) {
    for (std::int64_t i = 0; i < products; ++i) {
      matmul_.multiply(matrix(input_.as<const float>(), kRows, kWidth), packed_,
                       matrix(output_.as<float>(), kRows, kWidth));
    }
  }

 private:
  kernels::Matmul matmul_;
  Buffer input_, weights_, output_;
  kernels::PackedMatrix packed_;
};

enum class Mode { kCompute, kExchange, kInTurn, kAtOnce };

class OverlapBench {
 public:
  OverlapBench(const Options& options, comm::Communicator& world, Device& device)
      : options_(options),
        world_(world),
        exchange_(world.duplicate("exchange")),
        stage_(device),
        send_(device, world.size() * options.bytes),
        recv_(device, world.size() * options.bytes),
        compute_stream_(device.make_stream({.name = "compute"})),
        exchange_stream_(device.make_stream({.name = "exchange"})) {
    std::fill_n(send_.as<std::byte>(), send_.bytes(), std::byte{1});
    calibrate();
    compute_ = [this](Context&) { stage_.run(products_); };
    all_to_all_ = [this](Context& ctx) {
      exchange_->all_to_all(ctx, send_.as<void>(), recv_.as<void>(), options_.bytes);
    };
  }

  /// One repetition of everything.
  void run() {
    const double compute = seconds(Mode::kCompute);
    const double exchange = seconds(Mode::kExchange);
    const double longer = std::max(compute, exchange);
    add("dense stage alone", compute, 0);
    add("exchange alone", exchange, 0);
    add("in turn", seconds(Mode::kInTurn), longer);
    add("at once", seconds(Mode::kAtOnce), longer);
  }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  /// How many products take as long as asked for; rank 0's number for all.
  void calibrate() {
    stage_.run(4);
    const auto begin = std::chrono::steady_clock::now();
    stage_.run(8);
    products_ = std::max<std::int64_t>(
        1, static_cast<std::int64_t>(options_.compute_ms / 1e3 / (seconds_since(begin) / 8)));
    Context ctx;
    world_.broadcast(ctx, &products_, sizeof products_, 0);
  }

  double seconds(Mode mode) {
    Context ctx;
    world_.barrier(ctx);
    const auto begin = std::chrono::steady_clock::now();
    for (int round = 0; round < options_.rounds; ++round) {
      if (mode != Mode::kExchange) {
        compute_stream_->enqueue(compute_);
      }
      if (mode != Mode::kCompute) {
        (mode == Mode::kInTurn ? compute_stream_ : exchange_stream_)->enqueue(all_to_all_);
      }
      compute_stream_->wait(exchange_stream_->record());
      exchange_stream_->wait(compute_stream_->record());
    }
    compute_stream_->synchronize();
    exchange_stream_->synchronize();
    world_.barrier(ctx);  // the slowest rank's time
    return seconds_since(begin);
  }

  void add(const std::string& name, double value, double limit) {
    auto figure = std::find_if(figures_.begin(), figures_.end(),
                               [&](const Figure& one) { return one.name == name; });
    if (figure == figures_.end()) {
      Figure fresh;
      fresh.name = name;
      fresh.parameters = {
          {"ranks", fmt::format("{} {}", world_.size(), comm::launched_by_mpi() ? "mpi" : "local")},
          {"rounds", std::to_string(options_.rounds)},
          {"bytes", std::to_string(options_.bytes)}};
      fresh.unit = "ms";
      fresh.better = Better::kLower;
      figures_.push_back(std::move(fresh));
      figure = figures_.end() - 1;
    }
    figure->values.push_back(1e3 * value);
    if (limit > 0) {
      figure->limit = figure->limit.value_or(Limit{"the longer of the two alone", {}});
      figure->limit->values.push_back(1e3 * limit);
    }
  }

  const Options& options_;
  comm::Communicator& world_;
  std::unique_ptr<comm::Communicator> exchange_;
  DenseStage stage_;
  Buffer send_, recv_;
  std::int64_t products_ = 1;
  Stage compute_, all_to_all_;
  std::vector<Figure> figures_;
  std::unique_ptr<Stream> compute_stream_, exchange_stream_;  // end before what they use
};

std::vector<Figure> run_rank(const Options& options, comm::Communicator& world) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  OverlapBench bench(options, world, *device);
  for (int i = 0; i < options.repetitions; ++i) {
    bench.run();
  }
  return bench.figures();
}

void run(const Options& options) {
  std::vector<Figure> figures;
  const auto body = [&](comm::Communicator& world) {
    std::vector<Figure> own = run_rank(options, world);
    if (world.rank() == 0) {
      figures = std::move(own);
    }
  };
  if (comm::launched_by_mpi()) {
    comm::MpiSession session({});
    session.run(body);
  } else {
    comm::run_local(options.ranks, {}, body);
  }
  if (!figures.empty()) {
    fmt::print("{}", to_text(figures));
  }
  if (!figures.empty() && !options.out.empty()) {
    write_json(options.out, "overlap", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Measures whether an exchange beside a dense stage costs nothing");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--ranks", options.ranks, "Without mpirun").within(1, 64);
  arguments.add("--repetitions", options.repetitions).within(1, 1000);
  arguments.add("--rounds", options.rounds, "Of one repetition").within(1, 1000);
  arguments.add("--compute-ms", options.compute_ms, "Of a dense stage alone").within(0.1, 10000.0);
  arguments.add("--bytes", options.bytes, "To each peer").within(1, 1 << 30);
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "overlap_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
