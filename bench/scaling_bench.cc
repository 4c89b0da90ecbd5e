// How a step grows with the ranks: messages and bytes of every exchange, processor time, memory
// outside tables, what making the ranks takes, and bytes of plans and manifests (docs/scaling.md).
// Of ranks as threads that pass for those of hosts of 8, or of processes under mpirun; by the
// planner's formulas; and of one host of real ranks in a world whose others are imitated, of
// thousands of ranks. Where as many ranks exist too, both must have sent the same. One of that
// host's ranks then runs again alone, with what arrived at it.
//
// Messages and bytes are counts, the same on every machine. Processor time is that of the whole
// process over the ranks, the median of five turns of a few steps; "library" is without the dense
// model, and in an imitated world without what carries messages; "alone" is the same of the rank
// that is alone.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include "bench/arguments.h"
#include "bench/growth_job.h"
#include "bench/imitated_world.h"
#include "bench/replayed_rank.h"
#include "bench/report.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/planner/estimate.h"
#include "weft/planner/search.h"
#include "weft/topology/yaml.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kTaped = 3;          ///< the real rank that runs again alone
constexpr std::int64_t kMostCompared = 64;  ///< ranks that are imitated and run as well

struct Options {
  std::string cluster = "clusters/h100_8x400ib.yaml";
  std::string out;
  std::vector<std::string> sets = {"criteo_kaggle", "production"};
  std::vector<std::int64_t> counted = {8, 16, 32, 64};
  std::vector<std::int64_t> predicted = {8, 16, 32, 64, 512, 4096};
  std::vector<std::int64_t> imitated = {16, 64};
  std::vector<std::string> cuts = {"row-wise", "even"};
  std::vector<std::string> schedules = {"sync", "nested"};
  std::int64_t steps = 4;
  bool quick = false;
};

/// Figures of the rank with most, and those of the process over its ranks.
RankGrowth of_all(const std::vector<RankGrowth>& ranks) {
  RankGrowth all = ranks.front();
  for (const RankGrowth& rank : ranks) {
    all.counts.most_of(rank.counts);
  }
  double tables = 0.0;
  for (const RankGrowth& rank : ranks) {
    tables += rank.tables;
  }
  all.buffers = (all.buffers - tables) / static_cast<double>(ranks.size());
  return all;
}

class ScalingBench {
 public:
  explicit ScalingBench(const Options& options) : options_(options) {}

  void run() {
    for (const std::string& set : options_.sets) {
      for (const std::string& schedule : options_.schedules) {
        for (const std::int64_t ranks : options_.counted) {
          add_counted({.tables = set, .ranks = ranks, .nested = schedule == "nested"});
        }
      }
      for (const std::int64_t ranks : options_.predicted) {
        add_predicted(set, ranks);
      }
      for (const std::string& cut : options_.cuts) {
        for (const std::string& schedule : options_.schedules) {
          for (const std::int64_t ranks : options_.imitated) {
            add_imitated({.tables = set,
                          .cut = cut == "even" ? GrowthCut::kEven : GrowthCut::kRowWise,
                          .ranks = ranks,
                          .nested = schedule == "nested"});
          }
        }
      }
    }
  }

  /// Under mpirun: counts of as many ranks as there are processes.
  void run_processes() {
    std::vector<int> hosts;
    for (std::int64_t r = 0; r < 4096; ++r) {
      hosts.push_back(static_cast<int>(r / kGrowthPerHost));
    }
    comm::MpiSession session({.hosts = hosts});
    session.run([&](comm::Communicator& world) {
      for (const std::string& set : options_.sets) {
        for (const std::string& schedule : options_.schedules) {
          add_process(world,
                      {.tables = set, .ranks = world.size(), .nested = schedule == "nested"});
        }
      }
      if (world.rank() != 0) {
        figures_.clear();
      }
    });
  }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  void add(const std::string& name,
           const std::string& unit,
           const GrowthJob& job,
           const std::string& how,
           double value) {
    figures_.push_back({name,
                        {{"tables", job.tables},
                         {"cut", to_string(job.cut)},
                         {"ranks", std::to_string(job.ranks)},
                         {"schedule", how}},
                        unit,
                        Better::kLower,
                        {value},
                        {}});
  }

  void add_parts(const GrowthJob& job,
                 const std::string& how,
                 const std::array<double, kStepParts>& messages,
                 const std::array<double, kStepParts>& bytes) {
    for (std::size_t p = 0; p < kStepParts; ++p) {
      if (messages[p] > 0.0) {
        const std::string part(kStepPartNames[p]);
        add("messages." + part, "messages", job, how, messages[p]);
        add("bytes." + part, "bytes", job, how, bytes[p]);
      }
    }
  }

  void add_growth(const GrowthJob& job, const std::string& how, const RankGrowth& growth) {
    add_parts(job, how, growth.counts.messages, growth.counts.bytes);
    add("messages", "messages", job, how, growth.counts.all_messages);
    add("bytes", "bytes", job, how, growth.counts.all_bytes);
    add("step", "ms", job, how, 1e3 * growth.step_s);
    add("library", "ms", job, how, 1e3 * growth.library_s);
    add("start", "ms", job, how, 1e3 * growth.start_s);
    add("memory", "bytes", job, how, growth.buffers);
    add("heap", "bytes", job, how, growth.heap);
    if (growth.manifest > 0.0) {
      add("manifest", "bytes", job, how, growth.manifest);
      add("manifest_most", "bytes", job, how, growth.manifest_most);
      add("checkpoint", "bytes", job, how, growth.checkpoint);
    }
    fmt::print(
        "{} {} {} {}: {:.0f} messages, {:.0f} bytes, {:.2f} ms, library {:.2f} ms, start {:.2f} "
        "ms, {:.2f} MB, heap {:.2f} MB\n",
        job.tables, to_string(job.cut), job.ranks, how, growth.counts.all_messages,
        growth.counts.all_bytes, 1e3 * growth.step_s, 1e3 * growth.library_s, 1e3 * growth.start_s,
        1e-6 * growth.buffers, 1e-6 * growth.heap);
    std::fflush(stdout);
  }

  static std::string schedule_of(const GrowthJob& job) { return job.nested ? "nested" : "sync"; }

  void add_counted(const GrowthJob& job) {
    GrowthRun run = make_growth_run(job);
    run.here = job.ranks;
    run.steps = options_.steps;
    const std::filesystem::path folder =
        std::filesystem::temp_directory_path() / fmt::format("weft_scaling.{}", getpid());
    if (!job.nested && job.ranks <= kMostCompared) {
      run.folder = folder.string();
    }
    std::vector<RankGrowth> ranks(at(job.ranks));
    const std::vector<int> hosts(run.plan.hosts.begin(), run.plan.hosts.end());
    comm::run_local(static_cast<int>(job.ranks), {.hosts = hosts}, [&](comm::Communicator& world) {
      ranks[at(world.rank())] = measure_growth(world, run);
    });
    std::filesystem::remove_all(folder);
    add_growth(job, schedule_of(job), of_all(ranks));
  }

  void add_process(comm::Communicator& world, const GrowthJob& job) {
    GrowthRun run = make_growth_run(job);
    run.steps = options_.steps;
    RankGrowth own = of_all({measure_growth(world, run)});
    constexpr std::size_t kFigures = 2 * kStepParts + 7;
    std::array<double, kFigures> all{};
    std::copy(own.counts.messages.begin(), own.counts.messages.end(), all.begin());
    std::copy(own.counts.bytes.begin(), own.counts.bytes.end(), all.begin() + kStepParts);
    double* const others = all.data() + 2 * kStepParts;
    double* const of_rank[] = {&own.counts.all_messages,
                               &own.counts.all_bytes,
                               &own.step_s,
                               &own.library_s,
                               &own.start_s,
                               &own.buffers,
                               &own.heap};
    for (std::size_t i = 0; i < std::size(of_rank); ++i) {
      others[i] = *of_rank[i];
    }
    Context host;
    world.all_reduce(host, all.data(), kFigures, comm::ReduceOp::kMax);
    std::copy_n(all.begin(), kStepParts, own.counts.messages.begin());
    std::copy_n(all.begin() + kStepParts, kStepParts, own.counts.bytes.begin());
    for (std::size_t i = 0; i < std::size(of_rank); ++i) {
      *of_rank[i] = others[i];
    }
    if (world.rank() == 0) {
      add_growth(job, schedule_of(job), own);
    }
  }

  /// Of `real` ranks of the job's, in a world of all of them.
  std::vector<RankGrowth> run_real(const GrowthJob& job,
                                   std::int64_t real,
                                   double& plan_s,
                                   GroupTape* tape = nullptr) {
    const double begin = processor_s();
    GrowthRun run = make_growth_run(job);
    plan_s = processor_s() - begin;
    TransportTime transport;
    run.real = kGrowthPerHost;
    run.here = real;
    run.steps = options_.steps;
    run.transport = &transport;
    std::vector<RankGrowth> ranks(at(real));
    ImitatedOptions options = imitate(run, real);
    options.tape = tape;
    options.taped = kTaped;
    run_imitated(options, transport, [&](comm::Communicator& world) {
      ranks[at(world.rank())] = measure_growth(world, run);
    });
    return ranks;
  }

  /// One of the real ranks again, alone.
  void add_alone(const GrowthJob& job) {
    double plan_s = 0.0;
    GroupTape tape;
    const RankGrowth taped = run_real(job, kGrowthPerHost, plan_s, &tape)[at(kTaped)];
    GrowthRun run = make_growth_run(job);
    TransportTime transport;
    run.real = kGrowthPerHost;
    run.steps = options_.steps;
    run.transport = &transport;
    RankGrowth alone;
    run_replayed(tape, transport,
                 [&](comm::Communicator& world) { alone = measure_growth(world, run); });
    if (!(alone.counts == taped.counts)) {
      fail(ErrorCode::kInternal,
           "{} {} over {} ranks: rank {} sent {} messages of {} bytes alone, {} of {} among others",
           job.tables, to_string(job.cut), job.ranks, kTaped, alone.counts.all_messages,
           alone.counts.all_bytes, taped.counts.all_messages, taped.counts.all_bytes);
    }
    add("alone", "ms", job, "imitated " + schedule_of(job), 1e3 * alone.library_s);
    for (std::size_t p = 0; p < kStepParts; ++p) {
      if (alone.part_s[p] > 0.0) {
        add("alone." + std::string(kStepPartNames[p]), "ms", job, "imitated " + schedule_of(job),
            1e3 * alone.part_s[p]);
      }
    }
    fmt::print("{} {} {} alone {}: library {:.2f} ms\n", job.tables, to_string(job.cut), job.ranks,
               schedule_of(job), 1e3 * alone.library_s);
    std::fflush(stdout);
  }

  void add_imitated(const GrowthJob& job) {
    double plan_s = 0.0;
    const std::vector<RankGrowth> ranks = run_real(job, kGrowthPerHost, plan_s);
    add_growth(job, "imitated " + schedule_of(job), of_all(ranks));
    add("plan_time", "ms", job, "imitated " + schedule_of(job), 1e3 * plan_s);
    add_alone(job);
    if (job.ranks > kMostCompared) {
      return;
    }
    std::vector<RankGrowth> real = run_real(job, job.ranks, plan_s);
    for (std::size_t r = 0; r < ranks.size(); ++r) {
      if (!(real[r].counts == ranks[r].counts)) {
        fail(ErrorCode::kInternal,
             "{} {} over {} ranks: rank {} sent {} messages of {} bytes ({}; {}) to real peers, "
             "{} of {} ({}; {}) to imitated ones",
             job.tables, to_string(job.cut), job.ranks, r, real[r].counts.all_messages,
             real[r].counts.all_bytes, real[r].counts.messages, real[r].counts.bytes,
             ranks[r].counts.all_messages, ranks[r].counts.all_bytes, ranks[r].counts.messages,
             ranks[r].counts.bytes);
      }
    }
    add_growth(job, "real " + schedule_of(job), of_all(real));
  }

  void add_predicted(const std::string& set, std::int64_t ranks) {
    const GrowthJob job{.tables = set, .ranks = ranks};
    const GrowthRun run = make_growth_run(job);
    const topology::Cluster cluster =
        planner::resized(topology::load_cluster(options_.cluster), ranks);
    const planner::Workload workload = planner::make_workload(run.config);
    const planner::PlanCost cost =
        planner::Estimator(run.config, cluster, workload, run.plan.parts).cost(run.plan);
    double most = 0.0;
    for (const planner::RankCost& rank : cost.ranks) {
      most = std::max(most, rank.messages[1] + rank.messages[2]);
    }
    add_parts(job, "predicted", cost.messages, cost.sent);
    add("messages", "messages", job, "predicted", most);
    add("plan", "bytes", job, "predicted",
        static_cast<double>(spec::plan_to_yaml(run.plan).size()));
    add("manifest_most", "bytes", job, "predicted", most_manifest_bytes(run));
    fmt::print("{} {} predicted: {:.0f} messages\n", set, ranks, most);
    std::fflush(stdout);
  }

  const Options& options_;
  std::vector<Figure> figures_;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments("Counts, imitates and predicts how a step grows with the ranks");
  arguments.add_flag("--quick", options.quick, "One set, up to 16 ranks");
  arguments.add("--sets", options.sets, "Sets of tables");
  arguments.add("--counted", options.counted, "Numbers of ranks that run as threads; 0: none");
  arguments.add("--predicted", options.predicted,
                "Numbers of ranks of which formulas tell; 0: none");
  arguments.add("--imitated", options.imitated, "Numbers of ranks of which 8 run; 0: none");
  arguments.add("--cuts", options.cuts, "Of imitated ranks: row-wise, even");
  arguments.add("--schedules", options.schedules, "sync, nested");
  arguments.add("--steps", options.steps,
                "Steps of each of the five turns of which times are the median");
  arguments.add("--cluster", options.cluster, "Of which the predicted ranks are");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    if (options.quick) {
      options.sets = {"criteo_kaggle"};
      options.counted = {8, 16};
      options.cuts = {"even"};
      options.predicted = options.imitated = {16};
      options.steps = 1;
    }
    for (auto* const numbers : {&options.counted, &options.predicted, &options.imitated}) {
      std::erase(*numbers, 0);
    }
    const bool processes = weft::comm::launched_by_mpi();
    weft::bench::ScalingBench bench(options);
    processes ? bench.run_processes() : bench.run();
    if (!options.out.empty() && !bench.figures().empty()) {
      weft::bench::write_json(options.out, processes ? "scaling_mpi" : "scaling", bench.figures());
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "scaling_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
