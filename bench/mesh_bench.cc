// What a mesh of M replica groups costs each rank: counted, and by the formulas of weft/cost.
//
// One job on local ranks of one thread, tables of skewed ids that are cut by rows or whole in turn,
// trained for some steps with M = 1, 2, 4, ... groups and every form of sync. Of each:
//
//   tables      bytes of rows and optimizer state of a rank, beside S/N: S of all tables, N ranks
//               of a group
//   beside      bytes of a rank's device that are not tables (buffers of exchanges, vectors, dense
//               parameters), beside planner::step_memory of a job of N ranks with the group's share
//               of the batch. What a sync itself takes is in the count, not in the formula
//   peers       other ranks in the exchange of vectors, as its communicator traces it, beside N - 1
//   all_to_all  bytes that a rank sends of ids, vectors and their gradients in a step, beside
//               planner::Estimator for the same group
//   imbalance   rows looked up, max over mean of the ranks, beside that of the ids which the plan's
//               shards are expected to get
//   sync        bytes that a rank sends to make replicas equal, beside weft/cost/replicas.h for the
//               rows that were touched
//
// Nothing is timed: the figures are counts, the same on every machine. It fails where a sync is
// more than a tenth off its formula.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/core.h>
#include <fmt/ranges.h>

#include "bench/arguments.h"
#include "bench/report.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/cost/replicas.h"
#include "weft/cost/tables.h"
#include "weft/data/loader.h"
#include "weft/data/vocabulary.h"
#include "weft/layout/tables.h"
#include "weft/planner/dense_memory.h"
#include "weft/planner/estimate.h"
#include "weft/planner/place.h"
#include "weft/planner/step_memory.h"
#include "weft/spec/yaml.h"
#include "weft/train/engine.h"

namespace weft::bench {
namespace {

constexpr std::int64_t kTables = 12;
constexpr std::int64_t kWarmUp = 3;  // steps in which buffers grow

struct Options {
  std::string out;
  std::int64_t ranks = 8;
  std::int64_t steps = 4;  ///< that are counted
  bool quick = false;
};

std::vector<std::int64_t> cycle(const std::vector<std::int64_t>& values) {
  std::vector<std::int64_t> all;
  for (std::int64_t i = 0; i < kTables; ++i) {
    all.push_back(values[at(i) % values.size()]);
  }
  return all;
}

/// Long tables are cut by rows, short ones whole.
spec::Config make_config(const Options& options, std::int64_t groups, const std::string& sync) {
  const auto rows = cycle(options.quick ? std::vector<std::int64_t>{2000, 160, 800, 40}
                                        : std::vector<std::int64_t>{100'000, 8000, 40'000, 2000});
  const auto lengths = cycle({1, 4, 2, 1, 8});
  const auto dims = cycle({16, 64, 32});
  const std::int64_t batch = (options.quick ? 32 : 256) * options.ranks;
  const std::string text = fmt::format(
      "version: 1\n"
      "batch_size: {batch}\n"
      "data: {{format: synthetic, synthetic: {{samples: {samples}, eval_samples: 0, "
      "dense_columns: 4, columns: [{{name: 'C{{1..{tables}}}', cardinality: [{rows}], "
      "min_length: [{lengths}], max_length: [{lengths}]}}]}}}}\n"
      "dense_features: [{{name: 'd{{1..4}}', transform: log}}]\n"
      "sparse_features: [{{name: 'C{{1..{tables}}}', mapping: hash}}]\n"
      "tables: [{{name: 'C{{1..{tables}}}', num_embeddings: [{rows}], embedding_dim: [{dims}]}}]\n"
      "sparse_optimizer: {{type: row_wise_adagrad, learning_rate: 0.01}}\n"
      "model: {{type: dcnv2, bottom_mlp: [16], cross_layers: 1, cross_rank: 16, top_mlp: [16]}}\n"
      "dense_optimizer: {{type: sgd, learning_rate: 0.01}}\n"
      "train: {{overlap: false}}\n"  // an average is in the trace of its own step
      "numerics: {{parts: {parts}}}\n",
      fmt::arg("batch", batch), fmt::arg("samples", (kWarmUp + options.steps) * batch),
      fmt::arg("tables", kTables), fmt::arg("rows", fmt::join(rows, ", ")),
      fmt::arg("lengths", fmt::join(lengths, ", ")), fmt::arg("dims", fmt::join(dims, ", ")),
      fmt::arg("parts", options.ranks));
  const std::vector<std::string> mesh = {"mesh.groups=" + std::to_string(groups),
                                         "mesh.sync=" + sync};
  spec::Config config = spec::parse_config(text, "mesh_bench", mesh);
  for (std::size_t t = 0; t < config.tables.size(); ++t) {
    config.tables[t].sharding = t % 2 == 0 ? spec::Sharding::kRowWise : spec::Sharding::kTableWise;
  }
  return config;
}

// ---- counted ------------------------------------------------------------------------------------

/// Of one rank; of a step what is not memory.
struct Counted {
  double tables = 0.0;
  double beside = 0.0;
  double peers = 0.0;
  double all_to_all = 0.0;
  double sync = 0.0;
  double rows = 0.0;
};

/// [tables] rows that a rank asks for in a step, each once.
using Asked = std::vector<std::vector<std::int64_t>>;

struct Run {
  std::vector<Counted> ranks;             ///< [positions]
  std::vector<std::vector<Asked>> steps;  ///< [steps][positions]
};

Asked rows_of(const spec::Config& config, const data::Batch& batch) {
  Asked asked(config.tables.size());
  for (std::size_t f = 0; f < config.sparse_features.size(); ++f) {
    const JaggedView bags = batch.sparse.feature(static_cast<std::int64_t>(f));
    auto& rows = asked[at(spec::table_index(config, config.sparse_features[f]))];
    rows.insert(rows.end(), bags.values + bags.offsets.front(), bags.values + bags.offsets.back());
  }
  for (std::vector<std::int64_t>& rows : asked) {
    std::sort(rows.begin(), rows.end());
    rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  }
  return asked;
}

/// Whether a span is a part of a step: what collectives before it in a track belong to.
bool is_part(std::string_view name) {
  for (std::size_t p = 0; p < kStepParts; ++p) {
    if (name == to_string(static_cast<StepPart>(p))) {
      return true;
    }
  }
  return false;
}

/// Peers, and bytes sent in all recorded steps: of the all-to-alls, and between replicas. Spans are
/// in the order of their ends, so that an exchange stands before its part of the step.
void count_exchanges(const trace::Recorder& recorder, Counted& counted) {
  for (const trace::Track& track : recorder.tracks()) {
    double before = 0.0;
    for (const trace::Span& span : track.spans()) {
      if (span.collective >= 0) {
        const trace::Collective& moved = track.collective(span);
        const bool between_groups = *moved.group == "replicas";
        (between_groups ? counted.sync : before) += static_cast<double>(moved.bytes);
        if (*moved.group == "vectors") {
          counted.peers = std::max(counted.peers, static_cast<double>(moved.ranks - 1));
        }
      } else if (is_part(span.name)) {
        const std::string_view name = span.name;
        if (name == "exchange_ids" || name == "output_dist" || name == "grad_dist") {
          counted.all_to_all += before;
        }
        before = 0.0;
      }
    }
  }
}

double rows_read(const train::Engine& engine) {
  double rows = 0.0;
  for (const sharding::TableReads& reads : engine.embeddings().reads()) {
    rows += static_cast<double>(reads.rows);
  }
  return rows;
}

/// One rank's steps. Writes its own elements of `run` only.
void train_rank(const Options& options,
                const spec::Config& config,
                const spec::Plan& plan,
                comm::Communicator& world,
                Run& run) {
  const auto device = make_device({.kind = DeviceKind::kCpu, .threads = 1});
  data::LoaderOptions reading =
      data::LoaderOptions::train(config, world.rank(), world.size(), plan.parts);
  reading.epochs = 0;
  const data::Vocabularies none;
  data::Loader loader(data::open_source(config, data::Split::kTrain), config, none, reading);
  trace::Recorder recorder;
  train::Engine engine(config, plan, world, *device, {.recorder = &recorder});
  data::Batch batch;
  for (std::int64_t step = 1; step <= kWarmUp; ++step) {
    loader.next(batch);
    engine.train_step({.batch = batch, .step = step});
  }
  const std::size_t rank = at(world.rank());
  Counted& counted = run.ranks[rank];
  const double rows_before = rows_read(engine);
  recorder.start();
  for (std::int64_t i = 0; i < options.steps; ++i) {
    loader.next(batch);
    engine.train_step({.batch = batch, .step = kWarmUp + 1 + i});
    run.steps[at(i)][rank] = rows_of(config, batch);
  }
  recorder.stop();
  const auto steps = static_cast<double>(options.steps);
  count_exchanges(recorder, counted);
  counted.all_to_all /= steps;
  counted.sync /= steps;
  counted.rows = (rows_read(engine) - rows_before) / steps;
  counted.tables = static_cast<double>(engine.embeddings().bytes());
  counted.beside = static_cast<double>(device->memory_use()) - counted.tables;
}

Run train_ranks(const Options& options, const spec::Config& config, const spec::Plan& plan) {
  Run run;
  run.ranks.resize(at(plan.world()));
  run.steps.assign(at(options.steps), std::vector<Asked>(at(plan.world())));
  comm::run_local(static_cast<int>(plan.world()), {}, [&](comm::Communicator& world) {
    train_rank(options, config, plan, world, run);
  });
  return run;
}

// ---- by formula ---------------------------------------------------------------------------------

/// The job of one group as one of its own: N ranks with their share of the batch and its parts.
struct GroupJob {
  spec::Config config;
  spec::Plan plan;
};

GroupJob group_job(const spec::Config& config, const spec::Plan& plan) {
  GroupJob job{.config = config, .plan = plan};
  job.config.mesh = {};
  job.config.batch_size = config.batch_size / plan.groups;
  job.config.numerics.parts = plan.parts / plan.groups;
  job.plan.groups = 1;
  job.plan.parts = job.config.numerics.parts;
  return job;
}

/// Of ranks that are threads; rates say nothing of bytes.
topology::Cluster make_cluster(std::int64_t ranks) {
  topology::Cluster cluster;
  cluster.name = "threads";
  cluster.hosts = {{.count = 1, .ranks = ranks}};
  cluster.memory.ddr.value = 1e12;
  cluster.compute.gemm_fp32.value = 1e10;
  cluster.compute.copy.value = 1e10;
  cluster.compute.rows.points = {{.row_bytes = 64, .read = 1e9, .update = 5e8}};
  cluster.links.self.rank.value = 1e10;
  cluster.links.host.rank.value = 1e9;
  topology::check(cluster);
  return cluster;
}

/// Means over the ranks.
struct Formulas {
  double tables = 0.0;
  double beside = 0.0;
  double all_to_all = 0.0;
  double imbalance = 0.0;
};

Formulas formulas_of(const spec::Config& config, const spec::Plan& plan) {
  const GroupJob group = group_job(config, plan);
  const planner::Workload workload = planner::make_workload(group.config);
  const topology::Cluster cluster = make_cluster(plan.ranks);
  const planner::Estimator estimator(group.config, cluster, workload, group.plan.parts);
  const auto ranks = static_cast<double>(plan.ranks);
  Formulas means;
  for (const spec::Table& table : config.tables) {
    means.tables +=
        static_cast<double>(layout::shard_bytes(table, table.num_embeddings, table.embedding_dim)) /
        ranks;
  }
  double most = 0.0;
  double ids = 0.0;
  for (const planner::RankCost& rank : estimator.cost(group.plan).ranks) {
    const planner::ShardLoad& load = rank.load;
    most = std::max(most, load.ids);
    ids += load.ids;
    means.all_to_all +=
        (ranks - 1.0) / ranks * (load.ids_bytes + load.vector_bytes + load.gradient_bytes);
  }
  means.imbalance = most * ranks / ids;
  for (const planner::StepMemory& memory :
       planner::step_memory(group.config, workload, group.plan, {})) {
    means.beside += (memory.matrices + memory.buffers() - memory.relays) / ranks;
  }
  for (std::int64_t position = 0; position < plan.world(); ++position) {
    const planner::DenseMemory dense = planner::dense_memory(
        config, workload,
        {.parts = plan.parts, .ranks = plan.world(), .rank = position, .threads = 1});
    means.beside += dense.device() / static_cast<double>(plan.world());
  }
  return means;
}

/// Rows of one table that some ranks ask for, each once.
std::vector<std::int64_t> united(const std::vector<Asked>& ranks, Range which, std::size_t table) {
  std::vector<std::int64_t> rows;
  for (std::int64_t rank = which.begin; rank < which.end; ++rank) {
    const auto& more = ranks[at(rank)][table];
    rows.insert(rows.end(), more.begin(), more.end());
  }
  std::sort(rows.begin(), rows.end());
  rows.erase(std::unique(rows.begin(), rows.end()), rows.end());
  return rows;
}

double rows_in(const std::vector<std::int64_t>& rows, const RowSet& held) {
  return static_cast<double>(std::count_if(rows.begin(), rows.end(),
                                           [&](std::int64_t row) { return held.contains(row); }));
}

/// Bytes of one step's sync, the mean over the ranks: of the rows that were touched in it.
double sync_bytes(const spec::Config& config,
                  const spec::Plan& plan,
                  const std::vector<Asked>& asked) {
  const std::int64_t groups = plan.groups;
  double bytes = 0.0;  // of a rank of every place
  for (std::size_t t = 0; t < plan.tables.size(); ++t) {
    const auto any = united(asked, {0, plan.world()}, t);
    std::vector<std::vector<std::int64_t>> by_group;
    for (std::int64_t group = 0; group < groups; ++group) {
      by_group.push_back(united(asked, {group * plan.ranks, (group + 1) * plan.ranks}, t));
    }
    for (const spec::Shard& shard : plan.tables[t].shards) {
      const double row = cost::replica_row_bytes(config.tables[t], shard.cols.size());
      double own = 0.0;  // the mean over the groups
      for (const auto& rows : by_group) {
        own += rows_in(rows, shard.rows) / static_cast<double>(groups);
      }
      if (config.mesh.sync == spec::SyncForm::kDense) {
        bytes += cost::replica_average_bytes(groups, row * static_cast<double>(shard.rows.size()));
      } else if (config.mesh.sync == spec::SyncForm::kTouched) {
        bytes += cost::replica_average_bytes(groups, row * rows_in(any, shard.rows)) +
                 cost::touched_list_bytes(groups, 1.0, own);
      } else {
        bytes += cost::group_gradient_bytes(groups, shard.cols.size(), own);
      }
    }
  }
  return bytes / static_cast<double>(plan.ranks);
}

// ---- figures ------------------------------------------------------------------------------------

class MeshBench {
 public:
  explicit MeshBench(const Options& options) : options_(options) {}

  void run() {
    for (std::int64_t groups = 1; groups <= options_.ranks; groups *= 2) {
      for (const char* sync : {"dense", "touched", "gradients"}) {
        if (groups > 1 || std::string_view(sync) == "dense") {
          run_case(groups, sync);
        }
      }
    }
  }

  [[nodiscard]] const std::vector<Figure>& figures() const { return figures_; }

 private:
  void run_case(std::int64_t groups, const std::string& sync) {
    const spec::Config config = make_config(options_, groups, sync);
    const spec::Plan plan = planner::make_plan(config, options_.ranks);
    const Run counted = train_ranks(options_, config, plan);
    const Formulas expected = formulas_of(config, plan);
    parameters_ = {{"groups", std::to_string(groups)},
                   {"ranks", std::to_string(plan.ranks)},
                   {"sync", groups == 1 ? "none" : sync}};
    const double beside = mean(counted, &Counted::beside);
    if (groups == 1) {
      one_group_ = {.counted = beside, .expected = expected.beside};
    }
    add("tables", "MB", 1e-6 * mean(counted, &Counted::tables), 1e-6 * expected.tables);
    add("tables_most", "MB", 1e-6 * most(counted, &Counted::tables), 1e-6 * expected.tables);
    add("beside", "MB", 1e-6 * beside, 1e-6 * expected.beside);
    add("beside_ratio", "of one group", beside / one_group_.counted,
        expected.beside / one_group_.expected);
    add("peers", "ranks", mean(counted, &Counted::peers), static_cast<double>(plan.ranks - 1));
    add("all_to_all", "kB/step", 1e-3 * mean(counted, &Counted::all_to_all),
        1e-3 * expected.all_to_all);
    add("imbalance", "max/mean", most(counted, &Counted::rows) / mean(counted, &Counted::rows),
        expected.imbalance);
    if (groups > 1) {
      double bytes = 0.0;
      for (const std::vector<Asked>& step : counted.steps) {
        bytes += sync_bytes(config, plan, step) / static_cast<double>(counted.steps.size());
      }
      const double sent = mean(counted, &Counted::sync);
      add("sync", "kB/sync", 1e-3 * sent, 1e-3 * bytes);
      if (std::abs(sent - bytes) > 0.1 * bytes) {
        fail(ErrorCode::kInternal,
             "{} groups, {}: a sync sends {:.0f} bytes, by weft/cost/replicas.h {:.0f}", groups,
             sync, sent, bytes);
      }
    }
  }

  static double mean(const Run& run, double Counted::* member) {
    return std::accumulate(run.ranks.begin(), run.ranks.end(), 0.0,
                           [&](double sum, const Counted& rank) { return sum + rank.*member; }) /
           static_cast<double>(run.ranks.size());
  }

  static double most(const Run& run, double Counted::* member) {
    double value = 0.0;
    for (const Counted& rank : run.ranks) {
      value = std::max(value, rank.*member);
    }
    return value;
  }

  /// Of one rank in a group nothing is exchanged, and there is no share.
  void add(const std::string& name, const std::string& unit, double value, double formula) {
    Figure& figure = figures_.emplace_back();
    figure.name = name;
    figure.parameters = parameters_;
    figure.unit = unit;
    figure.better = Better::kLower;
    figure.values = {value};
    if (value > 0.0 && formula > 0.0) {
      figure.limit = Limit{"formula", {formula}};
    }
  }

  struct Beside {
    double counted = 1.0;
    double expected = 1.0;
  };

  const Options& options_;
  std::map<std::string, std::string> parameters_;
  Beside one_group_;
  std::vector<Figure> figures_;
};

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  weft::bench::Arguments arguments(
      "Counts what a mesh of replica groups costs each rank, beside the formulas");
  arguments.add("--out", options.out, "Write the figures as JSON to FILE");
  arguments.add("--ranks", options.ranks, "Of the world, as threads; a power of two")
      .one_of({2, 4, 8, 16});
  arguments.add("--steps", options.steps, "That are counted").within(1, 1000);
  arguments.add_flag("--quick", options.quick, "Tiny sizes");
  if (const auto code = arguments.parse(argc, argv)) {
    return *code;
  }
  try {
    weft::bench::MeshBench bench(options);
    bench.run();
    fmt::print("{}", weft::bench::to_text(bench.figures()));
    if (!options.out.empty()) {
      weft::bench::write_json(options.out, "mesh", bench.figures());
    }
  } catch (const std::exception& error) {
    std::fprintf(stderr, "mesh_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
