// Plans for sets of tables on many ranks of one cluster: how long the search takes, and what the
// plan it finds is predicted to take beside the simple ones. One thread, of which processor time
// counts; no rank runs.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <exception>
#include <map>
#include <span>
#include <string>
#include <vector>

#include <fmt/core.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/planner/sample_tables.h"
#include "weft/planner/scaling.h"
#include "weft/planner/search.h"
#include "weft/topology/yaml.h"

namespace weft::bench {
namespace {

struct Options {
  bool quick = false;
  int seeds = 3;
  std::string cluster = "clusters/h100_8x400ib.yaml";
  std::string out;
};

class SearchBench {
 public:
  explicit SearchBench(const Options& options)
      : options_(options), cluster_(topology::load_cluster(options.cluster)) {}

  void run() {
    const std::vector<std::int64_t> ranks = options_.quick
                                                ? std::vector<std::int64_t>{8}
                                                : std::vector<std::int64_t>{8, 128, 1024, 4096};
    for (const char* set : {"criteo_kaggle", "mlperf_dcnv2", "production", "adversarial"}) {
      const bool seeded = std::string(set) == "production" || std::string(set) == "adversarial";
      for (const std::int64_t n : ranks) {
        for (int seed = 1; seed <= (seeded && !options_.quick ? options_.seeds : 1); ++seed) {
          run_case(set, seeded ? fmt::format("{}:{}", set, seed) : set, n);
        }
        print(set, n);
      }
      run_scaling(set);
    }
  }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  void run_case(const std::string& set, const std::string& name, std::int64_t ranks) {
    const spec::Config config = planner::to_config(planner::table_set(name));
    const std::clock_t begin = std::clock();
    const planner::SearchResult found =
        planner::search(config, planner::resized(cluster_, ranks), planner::make_workload(config));
    const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
    const planner::Proposal& best = found.best();
    add("seconds", "s", set, ranks, seconds);
    add("fits", "plans", set, ranks, best.fits() ? 1 : 0);
    add("step", "ms", set, ranks, 1e3 * best.cost.step_s);
    add("step as scheduled", "ms", set, ranks, 1e3 * found.step_s());
    add("work", "max/mean", set, ranks, best.cost.imbalance());
    add("bytes", "max/mean", set, ranks, best.cost.bytes_imbalance());
    for (const planner::Proposal& one : found.proposals) {
      if (one.simple) {
        add("step of " + one.name, "x", set, ranks, one.cost.step_s / best.cost.step_s);
        add("work of " + one.name, "max/mean", set, ranks, one.cost.imbalance());
      }
    }
  }

  /// Strong scaling shares the set's 65,536 samples, weak scaling gives each rank 512.
  void run_scaling(const std::string& set) {
    const spec::Config config = planner::to_config(planner::table_set(set));
    const std::vector<std::int64_t> ranks = options_.quick
                                                ? std::vector<std::int64_t>{8, 16}
                                                : std::vector<std::int64_t>{128, 512, 1024, 4096};
    const planner::Scaling scaling =
        planner::predict_scaling(config, cluster_, planner::make_workload(config), ranks);
    add_scaling("strong", set, scaling.strong);
    add_scaling("weak", set, scaling.weak);
    fmt::print("{}:\n{}", set, to_text(scaling));
  }

  void add_scaling(const std::string& kind,
                   const std::string& set,
                   std::span<const planner::ScalingPoint> points) {
    for (std::size_t i = 0; i < points.size(); ++i) {
      const planner::ScalingPoint& point = points[i];
      add(kind + " step", "ms", set, point.ranks, 1e3 * point.step_s);
      add(kind + " samples", "samples", set, point.ranks,
          static_cast<double>(point.batch_size) / static_cast<double>(point.ranks));
      add(kind + " efficiency", "of linear", set, point.ranks,
          planner::scaling_efficiency(points, i));
      add(kind + " fits", "plans", set, point.ranks, point.fits ? 1 : 0);
    }
  }

  void add(const std::string& name,
           const std::string& unit,
           const std::string& set,
           std::int64_t ranks,
           double value) {
    const std::map<std::string, std::string> parameters = {{"tables", set},
                                                           {"ranks", std::to_string(ranks)}};
    auto figure = std::find_if(figures_.begin(), figures_.end(), [&](const Figure& one) {
      return one.name == name && one.parameters == parameters;
    });
    if (figure == figures_.end()) {
      figures_.push_back({name, parameters, unit, Better::kLower, {}, {}});
      figure = figures_.end() - 1;
    }
    figure->values.push_back(value);
  }

  void print(const std::string& set, std::int64_t ranks) const {
    fmt::print("{} on {} ranks:", set, ranks);
    for (const Figure& figure : figures_) {
      if (figure.parameters.at("tables") == set &&
          figure.parameters.at("ranks") == std::to_string(ranks)) {
        fmt::print("  {} {:.4g}", figure.name, median(figure.values));
      }
    }
    fmt::print("\n");
  }

  const Options& options_;
  topology::Cluster cluster_;
  std::vector<Figure> figures_;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments("Searches plans for sets of tables");
  arguments.add_flag("--quick", options.quick, "8 ranks and one seed");
  arguments.add("--seeds", options.seeds, "Seeds 1 to N").within(1, 100);
  arguments.add("--cluster", options.cluster, "Of which the ranks are");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::SearchBench bench(options);
    bench.run();
    if (!options.out.empty()) {
      weft::bench::write_json(options.out, "search", bench.figures());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "search_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
