// What the planner predicts of a step against what a step takes: models and plans of
// bench/plan_cases.h, each predicted from a calibration of this machine and then run.
//
// Calibration and cases take turns, round after round, as a shared machine's speed changes by the
// minute; no case is used to fit anything. Others can only slow down, so both sides take the quiet
// moments: of every calibrated figure the best round, of a step and of each of its parts the lower
// decile of a round's steps in the round where that is least. How far apart rounds are is a figure
// of its own (`noise`). Batches are drawn from the law that predictions assume and held in memory,
// so this says nothing of guesses about data.
//
// Of a part that is an exchange the rank that was in it for the shortest time counts, since the
// others wait in theirs; of the other parts the slowest rank. A step is from begin to begin.
#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <exception>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/core.h>

#include "bench/plan_cases.h"
#include "bench/plan_scores.h"
#include "bench/report.h"
#include "bench/timing.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/data/loader.h"
#include "weft/data/vocabulary.h"
#include "weft/planner/estimate.h"
#include "weft/planner/workload.h"
#include "weft/tensor/memory_use.h"
#include "weft/train/agreement.h"
#include "weft/train/calibrate.h"
#include "weft/train/engine.h"

namespace weft::bench {
namespace {

using planner::Part;
using planner::PlanCost;

struct Options {
  std::string out;
  int rounds = 5;
  double turn_s = 0.6;
  bool quick = false;
};

/// What a case takes, or should take.
struct Seconds {
  double step = 0.0;
  std::array<double, planner::kParts> parts{};
  double other = 0.0;  // measured only: what no part of the planner has
};

struct Memory {
  double tables = 0.0;   // of the rank with most
  double buffers = 0.0;  // of all ranks of this process, tables left out
};

struct CaseFigures {
  std::map<std::string, std::string> parameters;
  std::string group;  // what it is compared with
  PlanCase chosen;
  std::vector<Seconds> measured;  // by round
  Seconds predicted;
  Memory counted, expected;
};

/// What is known of one shape.
struct ShapeFigures {
  std::vector<CaseFigures> cases;
  std::vector<topology::Cluster> clusters;  // by round
};

struct Shape {
  int ranks = 1;
  int threads = 1;
};

constexpr std::array kExchanges = {Part::kExchangeCounts, Part::kExchangeIds,   Part::kOutputDist,
                                   Part::kReduce,         Part::kExchangeFlags, Part::kGradDist};

/// The engine's part of the planner's name.
train::StepPart step_part(Part part) {
  for (std::size_t p = 0; p < train::kStepParts; ++p) {
    const auto candidate = static_cast<train::StepPart>(p);
    if (train::to_string(candidate) == planner::to_string(part)) {
      return candidate;
    }
  }
  fail(ErrorCode::kInternal, "steps have no part '{}'", planner::to_string(part));
}

/// One step on one rank: begin, and seconds by StepPart.
struct StepRecord {
  double begin = 0.0;
  std::array<double, train::kStepParts> parts{};
};

using Records = std::vector<std::vector<StepRecord>>;  // [ranks][steps + 1]

/// What Seconds says of one run of steps; the last record only says when the step before it ended.
class Reading {
 public:
  Reading(const Records& ranks, const spec::Plan& plan) : ranks_(ranks), plan_(plan) {}

  [[nodiscard]] Seconds seconds() const {
    Seconds found{.step = step_s(), .other = other_s()};
    for (std::size_t p = 0; p < planner::kParts; ++p) {
      const auto part = static_cast<Part>(p);
      const auto index = static_cast<std::size_t>(step_part(part));
      found.parts[p] = has_exchange(part) ? shortest_s(index) : slowest_s(index);
    }
    return found;
  }

  [[nodiscard]] double step_s() const {
    return over_steps([this](std::size_t i) { return step_s(i); });
  }

 private:
  /// The lower decile: what a step takes that nobody disturbs.
  template <typename Of>
  [[nodiscard]] double over_steps(const Of& of) const {
    std::vector<double> values;
    for (std::size_t i = 0; i + 1 < ranks_.front().size(); ++i) {
      values.push_back(of(i));
    }
    const auto tenth = values.begin() + std::ssize(values) / 10;
    std::nth_element(values.begin(), tenth, values.end());
    return *tenth;
  }

  [[nodiscard]] double step_s(std::size_t i) const {
    return ranks_[0][i + 1].begin - ranks_[0][i].begin;
  }

  /// Of the rank that waits least.
  [[nodiscard]] double shortest_s(std::size_t part) const {
    return over_steps([&](std::size_t i) {
      double least = ranks_[0][i].parts[part];
      for (const auto& rank : ranks_) {
        least = std::min(least, rank[i].parts[part]);
      }
      return least;
    });
  }

  [[nodiscard]] double slowest_s(std::size_t part) const {
    double most = 0.0;
    for (const auto& rank : ranks_) {
      most = std::max(most, over_steps([&](std::size_t i) { return rank[i].parts[part]; }));
    }
    return most;
  }

  /// What no part of the planner has: the reduction is beside others, and these two are not its.
  [[nodiscard]] double other_s() const {
    return over_steps([this](std::size_t i) {
      double rest = step_s(i);
      for (std::size_t p = 0; p < train::kStepParts; ++p) {
        const auto part = static_cast<train::StepPart>(p);
        const bool left = part == train::StepPart::kReduce || part == train::StepPart::kPrepare ||
                          part == train::StepPart::kLoad;
        rest -= left ? 0.0 : ranks_[0][i].parts[p];
      }
      return rest;
    });
  }

  /// Copies exchange partial rows in the update, shards of columns statistics.
  [[nodiscard]] bool has_exchange(Part part) const {
    const bool columns_or_copies =
        std::any_of(plan_.tables.begin(), plan_.tables.end(), [](const spec::TablePlan& table) {
          return table.sharding == spec::Sharding::kDataParallel ||
                 table.sharding == spec::Sharding::kColumnWise;
        });
    return part == Part::kUpdateRows
               ? ranks_.size() > 1 && columns_or_copies
               : std::find(kExchanges.begin(), kExchanges.end(), part) != kExchanges.end();
  }

  const Records& ranks_;
  const spec::Plan& plan_;
};

/// All cases of one shape, on one rank.
class PlanBench {
 public:
  PlanBench(comm::Communicator& world, const Shape& shape, const Options& options)
      : world_(world.duplicate("bench")),
        shape_(shape),
        options_(options),
        device_(make_device({.kind = DeviceKind::kCpu, .threads = shape.threads})),
        host_{.device = device_.get(), .pool = &device_->pool(), .native_stream = nullptr} {}

  /// One round; adds to what is known of the cases by the order in which they come. Collective.
  void run(ShapeFigures& figures);

 private:
  void draw(const PlanCase& first);
  void run_case(CaseFigures& figures);
  Records take_steps(train::Engine& engine, std::int64_t count);
  [[nodiscard]] CaseFigures named(const PlanGroup& group, PlanCase chosen) const;

  std::unique_ptr<comm::Communicator> world_;
  Shape shape_;
  const Options& options_;
  std::unique_ptr<Device> device_;
  Context host_;
  std::vector<data::Batch> batches_;
  std::int64_t step_ = 0;
};

void PlanBench::draw(const PlanCase& first) {
  data::LoaderOptions reading =
      data::LoaderOptions::train(first.config, world_->rank(), world_->size(), first.made.parts);
  reading.epochs = 0;
  const data::Vocabularies none;
  data::Loader loader(data::open_source(first.config, data::Split::kTrain), first.config, none,
                      reading);
  batches_.resize(
      static_cast<std::size_t>(first.config.data.synthetic.samples / first.config.batch_size));
  for (data::Batch& batch : batches_) {
    loader.next(batch);
  }
}

Records PlanBench::take_steps(train::Engine& engine, std::int64_t count) {
  std::vector<StepRecord> own;
  world_->barrier(host_);
  for (std::int64_t i = 0; i <= count; ++i) {
    ++step_;
    engine.train_step(batches_[static_cast<std::size_t>(step_) % batches_.size()], step_, false);
    StepRecord& record = own.emplace_back();
    const train::StepTimes& times = engine.times();
    record.begin = std::chrono::duration<double>(times.step.begin.time_since_epoch()).count();
    for (std::size_t p = 0; p < train::kStepParts; ++p) {
      record.parts[p] = times.parts[p].seconds();
    }
  }
  const auto size = static_cast<std::size_t>(world_->size());
  std::vector<StepRecord> gathered(size * own.size());
  world_->all_gather(host_, own.data(), gathered.data(),
                     static_cast<std::int64_t>(own.size() * sizeof(StepRecord)));
  Records all;
  for (std::size_t r = 0; r < size; ++r) {
    const auto begin = gathered.begin() + static_cast<std::ptrdiff_t>(r * own.size());
    all.emplace_back(begin, begin + static_cast<std::ptrdiff_t>(own.size()));
  }
  return all;
}

CaseFigures PlanBench::named(const PlanGroup& group, PlanCase chosen) const {
  CaseFigures figures;
  figures.parameters = {{"model", group.model.name},
                        {"batch", std::to_string(group.batch)},
                        {"ranks", std::to_string(world_->size())},
                        {"threads", std::to_string(shape_.threads)},
                        {"backend", comm::launched_by_mpi() ? "mpi" : "local"}};
  for (const auto& [key, value] : figures.parameters) {
    figures.group += key + value + " ";
  }
  figures.parameters["plan"] = chosen.plan;
  figures.chosen = std::move(chosen);
  return figures;
}

void PlanBench::run_case(CaseFigures& figures) {
  const PlanCase& one = figures.chosen;
  world_->barrier(host_);
  const std::int64_t before = host_memory_use().now;
  world_->barrier(host_);
  train::Engine engine(one.config, one.made, *world_, *device_);
  take_steps(engine, 3);  // buffers grow, primitives are made
  double step_s = Reading(take_steps(engine, 3), one.made).step_s();
  world_->broadcast(host_, &step_s, sizeof step_s, 0);
  const double steps = std::clamp(options_.turn_s / step_s, 4.0, 2000.0);
  const Records records = take_steps(engine, static_cast<std::int64_t>(steps));
  figures.measured.push_back(Reading(records, one.made).seconds());
  std::vector<std::int64_t> bytes(static_cast<std::size_t>(world_->size()));
  const std::int64_t own = engine.embeddings().bytes();
  world_->all_gather(host_, &own, bytes.data(), sizeof own);
  double all = 0.0;
  for (const std::int64_t table_bytes : bytes) {
    all += static_cast<double>(comm::launched_by_mpi() ? 0 : table_bytes);
    figures.counted.tables = std::max(figures.counted.tables, static_cast<double>(table_bytes));
  }
  const double held = static_cast<double>(host_memory_use().now - before);
  figures.counted.buffers = held - (comm::launched_by_mpi() ? static_cast<double>(own) : all);
  world_->barrier(host_);
}

void PlanBench::run(ShapeFigures& figures) {
  const auto effort = options_.quick ? train::Effort::kQuick : train::Effort::kFull;
  figures.clusters.push_back(
      train::calibrate(*world_, {.threads = shape_.threads, .effort = effort}));
  std::size_t next = 0;
  for (const PlanGroup& group : plan_groups(world_->size(), options_.quick)) {
    std::vector<PlanCase> cases = plan_cases(group, world_->size());
    train::agree_on_target(*world_, host_, cases.front().config);
    draw(cases.front());
    for (PlanCase& one : cases) {
      if (next == figures.cases.size()) {
        figures.cases.push_back(named(group, std::move(one)));
      }
      run_case(figures.cases[next++]);
    }
  }
}

// ---- what is predicted --------------------------------------------------------------------------

topology::Rate best(topology::Rate a, const topology::Rate& b) {
  a.value = std::max(a.value, b.value);
  return a;
}

topology::Amount least(topology::Amount a, const topology::Amount& b) {
  a.value = std::min(a.value, b.value);
  return a;
}

/// The best of every figure.
topology::Cluster best_of(const std::vector<topology::Cluster>& rounds) {
  topology::Cluster cluster = rounds.front();
  for (const topology::Cluster& other : rounds) {
    topology::Compute& compute = cluster.compute;
    compute.gemm_fp32 = best(compute.gemm_fp32, other.compute.gemm_fp32);
    compute.gemm_bf16 = best(compute.gemm_bf16, other.compute.gemm_bf16);
    compute.copy = best(compute.copy, other.compute.copy);
    compute.stage = least(compute.stage, other.compute.stage);
    compute.collective = least(compute.collective, other.compute.collective);
    for (std::size_t i = 0; i < compute.rows.points.size(); ++i) {
      topology::RowPoint& point = compute.rows.points[i];
      point.read = std::max(point.read, other.compute.rows.points[i].read);
      point.update = std::max(point.update, other.compute.rows.points[i].update);
    }
    cluster.links.host.rank = best(cluster.links.host.rank, other.links.host.rank);
    cluster.links.host.latency = least(cluster.links.host.latency, other.links.host.latency);
  }
  return cluster;
}

void predict(ShapeFigures& shape) {
  const topology::Cluster cluster = best_of(shape.clusters);
  for (CaseFigures& one : shape.cases) {
    const planner::Workload workload = planner::make_workload(one.chosen.config);
    const planner::Estimator estimator(one.chosen.config, cluster, workload, one.chosen.made.parts);
    const PlanCost cost = estimator.cost(one.chosen.made);
    one.predicted = {.step = cost.step_s, .parts = cost.parts};
    for (const planner::RankCost& rank : cost.ranks) {
      one.expected.tables = std::max(one.expected.tables, static_cast<double>(rank.table_bytes));
      // All ranks share this process, or have one each.
      one.expected.buffers = rank.buffer_bytes + rank.dense_bytes +
                             (comm::launched_by_mpi() ? 0.0 : one.expected.buffers);
    }
  }
}

// ---- what came out ------------------------------------------------------------------------------

constexpr auto kStep = [](const Seconds& s) { return s.step; };

constexpr auto part_of(std::size_t p) {
  return [p](const Seconds& s) { return s.parts[p]; };
}

std::string name_of(std::size_t part) {
  return std::string(planner::to_string(static_cast<Part>(part)));
}

std::vector<double> times(const CaseFigures& one, const auto& of) {
  std::vector<double> values;
  for (const Seconds& round : one.measured) {
    values.push_back(1e3 * of(round));
  }
  return values;
}

/// In the quietest round.
double quiet(const CaseFigures& one, const auto& of) {
  const std::vector<double> values = times(one, of);
  return *std::min_element(values.begin(), values.end());
}

double predicted(const CaseFigures& one, const auto& of) {
  return 1e3 * of(one.predicted);
}

/// Worth a line: it takes time, and is predicted to.
bool happens(const CaseFigures& one, const auto& of) {
  return quiet(one, of) > 0.0 && predicted(one, of) > 0.0;
}

void add_case(std::vector<Figure>& figures, const CaseFigures& one) {
  const auto add = [&](const std::string& name, const std::string& unit, double value,
                       std::optional<double> expected) {
    Figure figure{.name = name,
                  .parameters = one.parameters,
                  .unit = unit,
                  .better = Better::kLower,
                  .values = {value},
                  .limit = {}};
    if (expected) {
      figure.limit = Limit{"predicted", {*expected}};
    }
    figures.push_back(std::move(figure));
  };
  add("step", "ms", quiet(one, kStep), predicted(one, kStep));
  for (std::size_t p = 0; p < planner::kParts; ++p) {
    if (happens(one, part_of(p))) {
      add("part." + name_of(p), "ms", quiet(one, part_of(p)), predicted(one, part_of(p)));
    }
  }
  add("part.other", "ms", quiet(one, [](const Seconds& s) { return s.other; }), std::nullopt);
  add("memory.tables", "MiB", one.counted.tables / 0x1p20, one.expected.tables / 0x1p20);
  add("memory.buffers", "MiB", one.counted.buffers / 0x1p20, one.expected.buffers / 0x1p20);
}

Figure summary(const std::string& name,
               const std::string& of,
               const std::string& unit,
               std::vector<double> values) {
  Figure figure{.name = name,
                .parameters = {},
                .unit = unit,
                .better = Better::kLower,
                .values = std::move(values),
                .limit = {}};
  if (!of.empty()) {
    figure.parameters = {{"of", of}};
  }
  return figure;
}

/// Predicted over measured, less 1, over all cases: its size and itself. And how far apart rounds
/// of a case are.
void add_errors(std::vector<Figure>& figures, const std::vector<CaseFigures>& cases) {
  const auto add = [&](const std::string& name, const auto& of) {
    std::vector<double> size, bias, noise;
    for (const CaseFigures& one : cases) {
      if (happens(one, of)) {
        bias.push_back(100.0 * (predicted(one, of) / quiet(one, of) - 1.0));
        size.push_back(std::abs(bias.back()));
        noise.push_back(100.0 * (median(times(one, of)) / quiet(one, of) - 1.0));
      }
    }
    if (!size.empty()) {
      figures.push_back(summary("error", name, "%", std::move(size)));
      figures.push_back(summary("bias", name, "%", std::move(bias)));
      figures.push_back(summary("noise", name, "%", std::move(noise)));
    }
  };
  add("step", kStep);
  for (std::size_t p = 0; p < planner::kParts; ++p) {
    add(name_of(p), part_of(p));
  }
}

/// Whether what is predicted to be faster is: within a model and batch, and over all.
void add_order(std::vector<Figure>& figures, const std::vector<CaseFigures>& cases) {
  constexpr double kApart = 0.05;

  struct Sides {
    std::vector<double> predicted, measured;
  };

  std::map<std::string, Sides> groups;
  for (const CaseFigures& one : cases) {
    for (Sides* sides : {&groups[one.group], &groups["all"]}) {
      sides->predicted.push_back(predicted(one, kStep));
      sides->measured.push_back(quiet(one, kStep));
    }
  }
  std::vector<double> within;
  PairCount pairs, apart;
  for (const auto& [name, sides] : groups) {
    if (name == "all" || sides.measured.size() < 3) {
      continue;
    }
    within.push_back(rank_correlation(sides.predicted, sides.measured));
    pairs += ordered_pairs(sides.predicted, sides.measured, 0.0);
    apart += ordered_pairs(sides.predicted, sides.measured, kApart);
  }
  const Sides& all = groups["all"];
  const auto add = [&](const std::string& name, const std::string& of, std::vector<double> values) {
    figures.push_back(summary(name, of, "1", std::move(values)));
    figures.back().better = Better::kHigher;
  };
  add("rank_correlation", "all", {rank_correlation(all.predicted, all.measured)});
  if (!within.empty()) {
    add("rank_correlation", "within", within);
    add("pairs_right", "all", {pairs.right / std::max(1.0, pairs.all)});
    add("pairs_right", "5 % apart", {apart.right / std::max(1.0, apart.all)});
  }
}

std::vector<Figure> figures_of(const std::vector<CaseFigures>& cases) {
  std::vector<Figure> figures;
  for (const CaseFigures& one : cases) {
    add_case(figures, one);
  }
  add_errors(figures, cases);
  add_order(figures, cases);
  return figures;
}

/// One round of one shape; rank 0's figures are kept.
void run_round(comm::Communicator& world,
               const Shape& shape,
               const Options& options,
               ShapeFigures& figures) {
  ShapeFigures own = figures;
  PlanBench(world, shape, options).run(own);
  world.duplicate("copied");  // by all of them
  if (world.rank() == 0) {
    figures = std::move(own);
  }
}

/// By shape; empty on other processes than the first.
std::vector<ShapeFigures> measure(const Options& options) {
  if (comm::launched_by_mpi()) {
    std::vector<ShapeFigures> figures(1);
    comm::MpiSession session({});
    session.run([&](comm::Communicator& world) {
      for (int round = 0; round < options.rounds; ++round) {
        run_round(world, {.ranks = world.size(), .threads = 1}, options, figures.front());
      }
      figures.resize(world.rank() == 0 ? 1 : 0);
    });
    return figures;
  }
  const std::vector<Shape> shapes = {{1, 1}, {1, 2}, {2, 1}};
  std::vector<ShapeFigures> figures(shapes.size());
  for (int round = 0; round < options.rounds; ++round) {
    for (std::size_t s = 0; s < shapes.size(); ++s) {
      comm::run_local(shapes[s].ranks, {}, [&](comm::Communicator& world) {
        run_round(world, shapes[s], options, figures[s]);
      });
    }
    std::fprintf(stderr, "plan_bench: round %d of %d\n", round + 1, options.rounds);
  }
  return figures;
}

void run(const Options& options) {
  std::vector<CaseFigures> cases;
  for (ShapeFigures& shape : measure(options)) {
    predict(shape);
    cases.insert(cases.end(), shape.cases.begin(), shape.cases.end());
  }
  if (cases.empty()) {
    return;
  }
  const std::vector<Figure> figures = figures_of(cases);
  fmt::print("{}", to_text(figures));
  if (!options.out.empty()) {
    write_json(options.out, "plan", figures);
  }
}

}  // namespace
}  // namespace weft::bench

int main(int argc, char** argv) {
  weft::bench::Options options;
  CLI::App app("Compares steps as the planner predicts them with steps as they are");
  app.add_option("--out", options.out, "Write the figures as JSON to FILE");
  app.add_option("--rounds", options.rounds, "Repetitions of everything")
      ->check(CLI::Range(1, 1000));
  app.add_option("--turn-seconds", options.turn_s, "About how long a case runs in a round");
  app.add_flag("--quick", options.quick, "Tiny sizes, whose figures say nothing");
  CLI11_PARSE(app, argc, argv);
  if (options.quick) {
    options.rounds = 1;
    options.turn_s = 0.01;
  }
  try {
    weft::bench::run(options);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plan_bench: %s\n", error.what());
    return 1;
  }
  return 0;
}
