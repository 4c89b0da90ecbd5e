// What weft/cost says of this machine against what happens on it: a cluster is calibrated, then the
// sparse part of steps and exchanges are run, and each is reported with the estimate as its limit.
// A share of 1 is an estimate that is right, below 1 one that is too short. Calibration is repeated
// every round, as a shared machine's speed changes.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/sparse_job.h"
#include "bench/timing.h"
#include "weft/comm/local/local.h"
#include "weft/comm/ordered_reduce.h"
#include "weft/cost/exchange.h"
#include "weft/cost/tables.h"
#include "weft/layout/tables.h"
#include "weft/train/calibrate.h"

namespace weft::bench {
namespace {

struct Options {
  std::string out;
  int rounds = 3;
  bool quick = false;
};

/// One quantity: what was measured and what was estimated, per round, in microseconds.
struct Pair {
  std::vector<double> measured;
  std::vector<double> estimated;
};

using Parameters = std::map<std::string, std::string>;

class Comparison {
 public:
  explicit Comparison(const Options& options) : options_(options) {}

  std::vector<Figure> run() {
    for (int round = 0; round < options_.rounds; ++round) {
      compare_tables();
      compare_exchanges();
    }
    std::vector<Figure> figures;
    for (const auto& [key, pair] : pairs_) {
      figures.push_back({.name = key.first,
                         .parameters = key.second,
                         .unit = "us",
                         .better = Better::kLower,
                         .values = pair.measured,
                         .limit = Limit{"estimate", pair.estimated}});
    }
    return figures;
  }

 private:
  [[nodiscard]] topology::Cluster calibrated(int ranks) const {
    topology::Cluster cluster;
    comm::run_local(ranks, {}, [&](comm::Communicator& world) {
      const auto effort = options_.quick ? train::Effort::kQuick : train::Effort::kFull;
      topology::Cluster found = train::calibrate(world, {.threads = 1, .effort = effort});
      if (world.rank() == 0) {
        cluster = std::move(found);
      }
    });
    return cluster;
  }

  void note(const std::string& name,
            const Parameters& parameters,
            double measured,
            double estimated) {
    Pair& pair = pairs_[{name, parameters}];
    pair.measured.push_back(measured * 1e6);
    pair.estimated.push_back(estimated * 1e6);
  }

  void compare_tables() {
    const topology::Cluster cluster = calibrated(1);
    for (const auto& [name, kind] :
         {std::pair("sgd", SparseOptimizerKind::kSgd),
          std::pair("row_wise_adagrad", SparseOptimizerKind::kRowWiseAdagrad),
          std::pair("adam", SparseOptimizerKind::kAdam)}) {
      for (const std::int64_t dim : {16, 64, 128}) {
        SparseShape shape;
        shape.optimizer.type = kind;
        shape.dim = dim;
        compare_step(cluster, shape, {{"optimizer", name}, {"D", std::to_string(dim)}});
      }
    }
  }

  void compare_step(const topology::Cluster& cluster,
                    SparseShape shape,
                    const Parameters& parameters) {
    spec::Table table;
    table.embedding_dim = shape.dim;
    table.optimizer = shape.optimizer;
    // As much memory as is calibrated with.
    const double bytes = options_.quick ? 0x1p24 : 0x1p31;
    const double row = static_cast<double>(layout::shard_bytes(table, 1024, shape.dim)) / 1024;
    shape.rows = static_cast<std::int64_t>(bytes / row / static_cast<double>(shape.tables));
    SparseJob job(shape);
    job.step();
    std::vector<double> forward, coalesce, update;
    for (int i = 0; i < (options_.quick ? 1 : 5); ++i) {
      const SparseTimes times = job.step();
      forward.push_back(times.forward);
      coalesce.push_back(times.coalesce);
      update.push_back(times.update);
    }
    const auto tables = static_cast<double>(shape.tables);
    const cost::ShardWork work{.ids = static_cast<double>(job.num_ids()) / tables,
                               .unique = static_cast<double>(job.num_unique()) / tables,
                               .bags = static_cast<double>(shape.batch)};
    note("lookup", parameters, median(forward),
         tables * cost::lookup_s(cluster, table, shape.dim, work));
    note("coalesce", parameters, median(coalesce),
         tables * cost::coalesce_s(cluster, shape.rows, work));
    note("update", parameters, median(update),
         tables * cost::update_s(cluster, table, shape.dim, work));
  }

  void compare_exchanges() {
    constexpr int kRanks = 2;
    const topology::Cluster cluster = calibrated(kRanks);
    const topology::Group group = topology::all_ranks(cluster);
    for (const std::int64_t bytes : {4096, 131072, 2097152}) {
      const std::vector<double> matrix = {0.0, static_cast<double>(bytes),
                                          static_cast<double>(bytes), 0.0};
      note("all_to_all", {{"bytes", std::to_string(bytes)}}, all_to_all_s(bytes),
           cost::exchange_s(cluster, cost::all_to_all(cluster, group, matrix)));
    }
    for (const std::int64_t count : {10'000, 1'000'000}) {
      note("ordered_all_reduce", {{"floats", std::to_string(count)}}, all_reduce_s(count),
           cost::all_reduce_s(cluster, cost::ordered_all_reduce(cluster, group, 8, count)));
    }
  }

  /// Median seconds on rank 0 of two, with one thread each.
  template <typename Make>
  double on_two_ranks(const Make& make) const {
    double seconds = 0.0;
    comm::run_local(2, {}, [&](comm::Communicator& world) {
      const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
      Context ctx{.device = device.get(), .pool = &device->pool()};
      auto once = make(world, ctx);
      std::vector<double> times;
      for (int i = 0; i < (options_.quick ? 3 : 200); ++i) {
        const auto start = std::chrono::steady_clock::now();
        once();
        times.push_back(seconds_since(start));
      }
      if (world.rank() == 0) {
        seconds = median(times);
      }
    });
    return seconds;
  }

  double all_to_all_s(std::int64_t bytes) const {
    return on_two_ranks([bytes](comm::Communicator& world, Context& ctx) {
      std::vector<std::int64_t> counts(2, bytes);
      counts[static_cast<std::size_t>(world.rank())] = 0;
      return [&world, &ctx, counts, from = std::vector<char>(static_cast<std::size_t>(bytes)),
              to = std::vector<char>(static_cast<std::size_t>(bytes))]() mutable {
        world.all_to_all_v(ctx, {from.data(), counts, to.data(), counts});
      };
    });
  }

  double all_reduce_s(std::int64_t count) const {
    return on_two_ranks([count](comm::Communicator& world, Context& ctx) {
      auto reduce = std::make_shared<comm::OrderedAllReduce>(world, *ctx.device, 8, count);
      std::fill_n(reduce->partial(0), count, 0.0F);
      return [&ctx, reduce] {
        const std::uint8_t present = 1;
        reduce->run(ctx, std::span(&present, 1));
      };
    });
  }

  Options options_;
  std::map<std::pair<std::string, Parameters>, Pair> pairs_;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments("Compares what weft/cost estimates with what is measured");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--rounds", options.rounds, "Repetitions of everything").within(1, 1000);
  arguments.add_flag("--quick", options.quick, "Tiny sizes, whose figures say nothing");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    const auto figures = weft::bench::Comparison(options).run();
    fmt::print("{}", weft::bench::to_text(figures));
    if (!options.out.empty()) {
      weft::bench::write_json(options.out, "cost", figures);
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "cost_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
