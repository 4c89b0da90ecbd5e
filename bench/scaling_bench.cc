// How a step grows with the ranks, on ranks as threads that pass for those of hosts of 8: messages
// and bytes of every exchange, processor time, memory outside tables, what making the ranks takes,
// and a plan's text; and the same by the planner's formulas, up to 4,096 ranks (docs/scaling.md).
//
// Messages and bytes are counts, the same on every machine. Processor time is that of the whole
// process over the ranks, so it includes the model's few products and what threads cost that wait.
#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>
#include <sys/resource.h>

#include "bench/report.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/base/philox.h"
#include "weft/base/step_part.h"
#include "weft/comm/local/local.h"
#include "weft/planner/estimate.h"
#include "weft/planner/place.h"
#include "weft/planner/sample_tables.h"
#include "weft/planner/search.h"
#include "weft/spec/yaml.h"
#include "weft/tensor/memory_use.h"
#include "weft/topology/yaml.h"
#include "weft/train/engine.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kPerHost = 8;
constexpr std::int64_t kSamples = 16;  // of a rank
constexpr std::int64_t kWarmUp = 2;

struct Options {
  std::string cluster = "clusters/h100_8x400ib.yaml";
  std::string out;
  std::vector<std::string> sets = {"criteo_kaggle", "production"};
  std::int64_t steps = 4;
  std::int64_t most_counted = 64;
  std::int64_t most_predicted = 4096;
  bool quick = false;
};

/// The tables of a set with at most 4,096 rows of 16 columns, one id a sample: the largest are cut
/// by rows over all ranks, the smallest are on every rank, the others whole.
spec::Config make_config(const std::string& set, std::int64_t ranks, bool nested) {
  std::vector<planner::TableUse> tables = planner::table_set(set);
  for (planner::TableUse& table : tables) {
    table.rows = std::min<std::int64_t>(table.rows, 4096);
    table.dim = 16;
    table.mean_length = 1.0;
    table.max_length = 1;
  }
  spec::Config config = planner::to_config(tables);
  for (spec::Table& table : config.tables) {
    table.sharding = table.num_embeddings >= 4096 ? spec::Sharding::kRowWise
                     : table.num_embeddings < 64  ? spec::Sharding::kDataParallel
                                                  : spec::Sharding::kTableWise;
  }
  config.batch_size = kSamples * ranks;
  config.numerics.parts = 2 * ranks;
  config.model.top_mlp = {8};
  config.pipeline.schedule =
      nested ? spec::PipelineSchedule::kNested : spec::PipelineSchedule::kSync;
  config.pipeline.micro_batches = {{1, 1}};
  spec::validate(config);
  return config;
}

spec::Plan make_plan(const spec::Config& config, std::int64_t ranks) {
  std::vector<std::int64_t> hosts;
  for (std::int64_t r = 0; r < ranks; ++r) {
    hosts.push_back(r / kPerHost);
  }
  spec::Plan plan = planner::make_plan(config, {.ranks = ranks, .hosts = hosts});
  const auto form =
      ranks > kPerHost ? spec::CollectiveForm::kHierarchical : spec::CollectiveForm::kFlat;
  const HostLayout layout(std::vector<int>(hosts.begin(), hosts.end()));
  plan.collectives = {.ids = form,
                      .vectors = form,
                      .dense = ranks > kPerHost ? planner::hierarchical_sum(layout) : form};
  return plan;
}

data::Batch make_batch(const spec::Config& config, const spec::Plan& plan, std::int64_t rank) {
  data::Batch batch;
  batch.global_size = config.batch_size;
  batch.positions = rank_samples(config.batch_size, plan.parts, plan.world(), rank);
  batch.sparse.batch = batch.size();
  batch.sparse.offsets.push_back(0);
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const spec::SparseFeature& feature = config.sparse_features[f];
    batch.sparse.keys.push_back(feature.name);
    const auto rows = static_cast<std::uint64_t>(
        config.tables[at(spec::table_index(config, feature))].num_embeddings);
    for (std::int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
      batch.sparse.values.push_back(
          static_cast<std::int64_t>(philox(f, static_cast<std::uint64_t>(p), 0)[0] % rows));
      batch.sparse.weights.push_back(1.0F);
      batch.sparse.offsets.push_back(static_cast<std::int64_t>(batch.sparse.values.size()));
    }
  }
  for (std::int64_t p = batch.positions.begin; p < batch.positions.end; ++p) {
    batch.sample_ids.push_back(p);
  }
  const std::size_t size = at(batch.size());
  batch.dense.assign(size * config.dense_features.size(), 0.5F);
  batch.labels.assign(size * config.tasks.size(), 1.0F);
  batch.label_weights.assign(size * config.tasks.size(), 1.0F);
  return batch;
}

double processor_s() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Figures are of the rank with most, per step.
struct Counted {
  std::array<double, kStepParts> messages{};
  std::array<double, kStepParts> bytes{};
  double all_messages = 0.0;
  double step_s = 0.0;   ///< of a processor, of a rank
  double start_s = 0.0;  ///< of a processor, of a rank
  double memory = 0.0;   ///< bytes outside tables, of a rank
};

void count(const trace::Recorder& recorder, std::int64_t steps, Counted& counted) {
  Counted own;
  for (const trace::Track& track : recorder.tracks()) {
    const auto spans = track.spans();
    for (std::size_t i = 0; i < spans.size(); ++i) {
      if (spans[i].collective < 0) {
        continue;
      }
      const trace::Collective& one = track.collective(spans[i]);
      const auto messages = static_cast<double>(one.messages) / static_cast<double>(steps);
      own.all_messages += messages;
      for (std::size_t j = i + 1; j < spans.size(); ++j) {
        const auto part = std::find(kStepPartNames.begin(), kStepPartNames.end(),
                                    std::string_view(spans[j].name));
        if (part != kStepPartNames.end() && spans[j].begin_ns <= spans[i].begin_ns) {
          const auto p = static_cast<std::size_t>(part - kStepPartNames.begin());
          own.messages[p] += messages;
          own.bytes[p] += static_cast<double>(one.bytes) / static_cast<double>(steps);
          break;
        }
      }
    }
  }
  for (std::size_t p = 0; p < kStepParts; ++p) {
    counted.messages[p] = std::max(counted.messages[p], own.messages[p]);
    counted.bytes[p] = std::max(counted.bytes[p], own.bytes[p]);
  }
  counted.all_messages = std::max(counted.all_messages, own.all_messages);
}

Counted count_steps(const spec::Config& config, std::int64_t ranks, std::int64_t steps) {
  Counted counted;
  std::mutex mutex;
  double tables = 0.0;
  const double begin = processor_s();
  const spec::Plan plan = make_plan(config, ranks);
  const std::vector<int> hosts(plan.hosts.begin(), plan.hosts.end());
  comm::run_local(static_cast<int>(ranks), {.hosts = hosts}, [&](comm::Communicator& world) {
    const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
    Context host{.device = device.get(), .pool = &device->pool(), .native_stream = nullptr};
    trace::Recorder recorder;
    train::Engine engine(config, plan, world, *device, {.recorder = &recorder});
    world.barrier(host);
    double now = 0.0;
    if (world.rank() == 0) {
      counted.start_s = (processor_s() - begin) / static_cast<double>(ranks);
    }
    const data::Batch batch = make_batch(config, plan, world.rank());
    std::int64_t step = 0;
    const auto run = [&](std::int64_t number) {
      for (std::int64_t i = 0; i < number; ++i) {
        engine.train_step({.batch = batch, .step = ++step});
      }
    };
    run(kWarmUp);
    world.barrier(host);
    now = processor_s();
    run(steps);
    world.barrier(host);
    if (world.rank() == 0) {
      counted.step_s = (processor_s() - now) / static_cast<double>(ranks * steps);
    }
    recorder.start();
    run(1);
    recorder.stop();
    const std::lock_guard lock(mutex);
    count(recorder, 1, counted);
    tables += static_cast<double>(engine.embeddings().bytes());
    counted.memory = std::max(counted.memory, static_cast<double>(host_memory_use().now));
  });
  counted.memory = (counted.memory - tables) / static_cast<double>(ranks);
  return counted;
}

class ScalingBench {
 public:
  explicit ScalingBench(const Options& options)
      : options_(options), cluster_(topology::load_cluster(options.cluster)) {}

  void run() {
    for (const std::string& set : options_.sets) {
      for (const bool nested : {false, true}) {
        for (std::int64_t ranks = kPerHost; ranks <= options_.most_counted; ranks *= 2) {
          add_counted(set, ranks, nested);
        }
      }
      for (std::int64_t ranks = kPerHost; ranks <= options_.most_predicted;
           ranks *= ranks < 64 ? 2 : 8) {
        add_predicted(set, ranks);
      }
    }
  }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  void add(const std::string& name,
           const std::string& unit,
           const std::string& set,
           std::int64_t ranks,
           const std::string& how,
           double value) {
    figures_.push_back({name,
                        {{"tables", set}, {"ranks", std::to_string(ranks)}, {"schedule", how}},
                        unit,
                        Better::kLower,
                        {value},
                        {}});
  }

  void add_parts(const std::string& set,
                 std::int64_t ranks,
                 const std::string& how,
                 const std::array<double, kStepParts>& messages,
                 const std::array<double, kStepParts>& bytes) {
    for (std::size_t p = 0; p < kStepParts; ++p) {
      if (messages[p] > 0.0) {
        const std::string part(kStepPartNames[p]);
        add("messages." + part, "messages", set, ranks, how, messages[p]);
        add("bytes." + part, "bytes", set, ranks, how, bytes[p]);
      }
    }
  }

  void add_counted(const std::string& set, std::int64_t ranks, bool nested) {
    const Counted counted = count_steps(make_config(set, ranks, nested), ranks, options_.steps);
    const std::string how = nested ? "nested" : "sync";
    add_parts(set, ranks, how, counted.messages, counted.bytes);
    add("messages", "messages", set, ranks, how, counted.all_messages);
    add("step", "ms", set, ranks, how, 1e3 * counted.step_s);
    add("start", "ms", set, ranks, how, 1e3 * counted.start_s);
    add("memory", "bytes", set, ranks, how, counted.memory);
    fmt::print("{} {} {}: {:.0f} messages, {:.2f} ms, start {:.2f} ms, {:.2f} MB\n", set, ranks,
               how, counted.all_messages, 1e3 * counted.step_s, 1e3 * counted.start_s,
               1e-6 * counted.memory);
    std::fflush(stdout);
  }

  void add_predicted(const std::string& set, std::int64_t ranks) {
    const spec::Config config = make_config(set, ranks, false);
    const spec::Plan plan = make_plan(config, ranks);
    const topology::Cluster cluster = planner::resized(cluster_, ranks);
    const planner::Workload workload = planner::make_workload(config);
    const planner::PlanCost cost =
        planner::Estimator(config, cluster, workload, plan.parts).cost(plan);
    double most = 0.0;
    for (const planner::RankCost& rank : cost.ranks) {
      most = std::max(most, rank.messages[1] + rank.messages[2]);
    }
    add_parts(set, ranks, "predicted", cost.messages, cost.sent);
    add("messages", "messages", set, ranks, "predicted", most);
    add("plan", "bytes", set, ranks, "predicted",
        static_cast<double>(spec::plan_to_yaml(plan).size()));
    fmt::print("{} {} predicted: {:.0f} messages\n", set, ranks, most);
    std::fflush(stdout);
  }

  const Options& options_;
  topology::Cluster cluster_;
  std::vector<Figure> figures_;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  CLI::App app("Counts and predicts how a step grows with the ranks");
  app.add_flag("--quick", options.quick, "One set, up to 16 ranks");
  app.add_option("--sets", options.sets, "Sets of tables");
  app.add_option("--cluster", options.cluster, "Of which the predicted ranks are");
  app.add_option("--out", options.out, "Write the figures as JSON to FILE");
  CLI11_PARSE(app, argc, argv);
  try {
    if (options.quick) {
      options.sets = {"criteo_kaggle"};
      options.most_counted = options.most_predicted = 16;
      options.steps = 1;
    }
    weft::bench::ScalingBench bench(options);
    bench.run();
    if (!options.out.empty()) {
      weft::bench::write_json(options.out, "scaling", bench.figures());
    }
  } catch (const std::exception& error) {
    fmt::print(stderr, "scaling_bench: {}\n", error.what());
    return 1;
  }
  return 0;
}
