#include "bench/plan_run.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <utility>

#include "weft/base/error.h"
#include "weft/comm/local/local.h"
#include "weft/comm/mpi/mpi.h"
#include "weft/data/loader.h"
#include "weft/data/vocabulary.h"
#include "weft/tensor/memory_use.h"
#include "weft/train/agreement.h"
#include "weft/train/calibrate.h"
#include "weft/train/engine.h"

namespace weft::bench {
namespace {

struct Shape {
  int ranks = 1;
  int threads = 1;
};

constexpr std::array kExchanges = {StepPart::kExchangeCounts, StepPart::kExchangeIds,
                                   StepPart::kOutputDist,     StepPart::kReduce,
                                   StepPart::kExchangeReport, StepPart::kGradDist};

/// One step on one rank: begin, and seconds by StepPart.
struct StepRecord {
  double begin = 0.0;
  std::array<double, kStepParts> parts{};
};

using Records = std::vector<std::vector<StepRecord>>;  // [ranks][steps + 1]

/// What Seconds says of one run of steps; the last record only says when the step before it ended.
class Reading {
 public:
  Reading(const Records& ranks, const spec::Plan& plan) : ranks_(ranks), plan_(plan) {}

  [[nodiscard]] Seconds seconds() const {
    Seconds found{.step = step_s(), .other = other_s()};
    for (const StepPart part : planner::kPredictedParts) {
      const auto index = static_cast<std::size_t>(part);
      found.parts[index] = has_exchange(part) ? shortest_s(index) : slowest_s(index);
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
      for (std::size_t p = 0; p < kStepParts; ++p) {
        const auto part = static_cast<StepPart>(p);
        const bool left =
            part == StepPart::kReduce || part == StepPart::kPrepare || part == StepPart::kLoad;
        rest -= left ? 0.0 : ranks_[0][i].parts[p];
      }
      return rest;
    });
  }

  /// Copies exchange partial rows in the update, shards of columns statistics.
  [[nodiscard]] bool has_exchange(StepPart part) const {
    const bool columns_or_copies =
        std::any_of(plan_.tables.begin(), plan_.tables.end(), [](const spec::TablePlan& table) {
          return table.sharding == spec::Sharding::kDataParallel ||
                 table.sharding == spec::Sharding::kColumnWise;
        });
    return part == StepPart::kUpdateRows
               ? ranks_.size() > 1 && columns_or_copies
               : std::find(kExchanges.begin(), kExchanges.end(), part) != kExchanges.end();
  }

  const Records& ranks_;
  const spec::Plan& plan_;
};

/// All cases of one shape, on one rank.
class PlanBench {
 public:
  PlanBench(comm::Communicator& world, const Shape& shape, const PlanRunOptions& options)
      : world_(world.duplicate("bench")),
        shape_(shape),
        options_(options),
        device_(make_device({.kind = DeviceKind::kCpu, .threads = shape.threads})),
        host_{.device = device_.get(), .pool = &device_->pool(), .native_stream = nullptr} {}

  /// One round; adds to what is known of the cases by the order in which they come. Collective.
  void run(ShapeFigures& figures);

 private:
  /// Bytes, of this process and of this rank's device.
  struct Held {
    std::int64_t process = 0;
    std::int64_t device = 0;
  };

  [[nodiscard]] Held held() const;
  void count_memory(const train::Engine& engine, const Held& before, RankMemory& counted);
  void draw(const PlanCase& first);
  void run_case(PlanFigures& figures);
  Records take_steps(train::Engine& engine, std::int64_t count);

  [[nodiscard]] train::StepInput input_of(std::int64_t step) const {
    return {.batch = batches_[static_cast<std::size_t>(step) % batches_.size()], .step = step};
  }

  std::unique_ptr<comm::Communicator> world_;
  Shape shape_;
  const PlanRunOptions& options_;
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
    const train::StepInput next = input_of(step_ + 1);
    engine.train_step(input_of(step_), engine.looks_ahead() && i < count ? &next : nullptr);
    StepRecord& record = own.emplace_back();
    const train::StepTimes& times = engine.times();
    record.begin = std::chrono::duration<double>(times.step.begin.time_since_epoch()).count();
    for (std::size_t p = 0; p < kStepParts; ++p) {
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

PlanBench::Held PlanBench::held() const {
  return {.process = host_memory_use().now, .device = device_->memory_use()};
}

/// Blocks of dense passes lie in no device: they are as large on all ranks of a process.
void PlanBench::count_memory(const train::Engine& engine, const Held& before, RankMemory& counted) {
  struct Bytes {
    std::int64_t tables, device, process;
  };

  const Held now = held();
  const Bytes own{.tables = engine.embeddings().bytes(),
                  .device = now.device - before.device,
                  .process = now.process - before.process};
  const auto size = static_cast<std::size_t>(world_->size());
  std::vector<Bytes> all(size);
  world_->all_gather(host_, &own, all.data(), sizeof own);
  std::int64_t devices = 0;  // of the ranks that share a process
  for (const Bytes& rank : all) {
    devices += rank.device;
  }
  counted = {};
  for (const Bytes& rank : all) {
    const std::int64_t held = comm::launched_by_mpi()
                                  ? rank.process
                                  : rank.device + (rank.process - devices) / world_->size();
    counted.tables.push_back(static_cast<double>(rank.tables));
    counted.buffers.push_back(static_cast<double>(held - rank.tables));
  }
}

void PlanBench::run_case(PlanFigures& figures) {
  const PlanCase& one = figures.chosen;
  world_->barrier(host_);
  const Held before = held();
  world_->barrier(host_);
  train::Engine engine(one.config, one.made, *world_, *device_);
  take_steps(engine, 3);  // buffers grow, primitives are made
  double step_s = Reading(take_steps(engine, 3), one.made).step_s();
  world_->broadcast(host_, &step_s, sizeof step_s, 0);
  const double steps = std::clamp(options_.turn_s / step_s, 4.0, 2000.0);
  const Records records = take_steps(engine, static_cast<std::int64_t>(steps));
  figures.measured.push_back(Reading(records, one.made).seconds());
  count_memory(engine, before, figures.counted);
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
        figures.cases.push_back(plan_figures(group, std::move(one), world_->size(), shape_.threads,
                                             comm::launched_by_mpi() ? "mpi" : "local"));
      }
      run_case(figures.cases[next++]);
    }
  }
}

/// One round of one shape; rank 0's figures are kept.
void run_round(comm::Communicator& world,
               const Shape& shape,
               const PlanRunOptions& options,
               ShapeFigures& figures) {
  ShapeFigures own = figures;
  PlanBench(world, shape, options).run(own);
  world.duplicate("copied");  // by all of them
  if (world.rank() == 0) {
    figures = std::move(own);
  }
}

}  // namespace

std::vector<ShapeFigures> measure_plans(const PlanRunOptions& options) {
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

}  // namespace weft::bench
