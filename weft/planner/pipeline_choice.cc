#include "weft/planner/pipeline_choice.h"

#include <algorithm>
#include <array>
#include <limits>
#include <optional>
#include <string_view>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/parts.h"
#include "weft/pipeline/schedule.h"
#include "weft/planner/dense_memory.h"
#include "weft/planner/schedule_walk.h"
#include "weft/planner/step_memory.h"
#include "weft/topology/rates.h"

namespace weft::planner {
namespace {

using spec::PipelineSchedule;

constexpr std::array kSchedules = {PipelineSchedule::kSync, PipelineSchedule::kPrefetch,
                                   PipelineSchedule::kDbp, PipelineSchedule::kFwp,
                                   PipelineSchedule::kNested};
constexpr std::array<std::int64_t, 3> kCuts = {2, 4, 8};

/// Shares of the micro-batches in the batch of the rank with most parts.
WalkCuts walk_cuts(const StepShape& shape, const spec::Pipeline& pipeline) {
  const Range own = rank_parts(shape.parts, shape.world_ranks, 0);
  const MicroBatches cuts = pipeline.cuts();
  WalkCuts walked{.shares = {}, .lookahead = pipeline.lookahead};
  for (std::int64_t cut = 0; cut < cuts.count(); ++cut) {
    walked.shares.push_back(static_cast<double>(cuts.parts(own, cut).size()) /
                            static_cast<double>(own.size()));
  }
  return walked;
}

/// Those of one schedule that are tried: as configured, or in as many micro-batches as have parts.
std::vector<spec::Pipeline> tried(const StepShape& shape, PipelineSchedule schedule) {
  spec::Pipeline pipeline = shape.config.pipeline;
  if (pipeline.schedule == schedule) {
    return {pipeline};
  }
  pipeline.schedule = schedule;
  if (!cuts_batches(schedule)) {
    return {pipeline};
  }
  std::vector<spec::Pipeline> all;
  for (const std::int64_t count : kCuts) {
    if (count * shape.world_ranks <= shape.parts) {
      pipeline.micro_batches.sizes.assign(at(count), 1);
      all.push_back(pipeline);
    }
  }
  if (all.empty()) {
    pipeline.micro_batches.sizes = {1};
    all.push_back(pipeline);
  }
  return all;
}

/// Of a step in flight and its tables, [ranks].
std::vector<double> memory_of(const Estimator& estimator,
                              const spec::Plan& plan,
                              const std::optional<spec::Pipeline>& pipeline) {
  const StepShape& shape = estimator.shape();
  const auto transport = topology::hosts(shape.world) > 1 ? Transport::kReceived : Transport::kLent;
  const MicroBatches cuts = pipeline.value_or(shape.config.pipeline).cuts();
  const double sums = most_gradient_sums(shape.config, shape.parts, shape.world_ranks, cuts);
  std::vector<double> bytes;
  for (const StepMemory& memory :
       step_memory(shape.config, shape.workload, plan,
                   {.transport = transport, .pipeline = pipeline}, estimator.hot_uses())) {
    bytes.push_back(memory.matrices + memory.buffers() + sums);
  }
  return bytes;
}

/// Of a rank, [ranks]. `before`: memory_of() what `cost` is of.
std::vector<double> bytes_under(const Estimator& estimator,
                                const spec::Plan& plan,
                                const PlanCost& cost,
                                const std::vector<double>& before,
                                const spec::Pipeline& pipeline) {
  std::vector<double> bytes = memory_of(estimator, plan, pipeline);
  for (std::size_t r = 0; r < bytes.size(); ++r) {
    const RankCost& rank = cost.ranks[r];
    bytes[r] +=
        static_cast<double>(rank.table_bytes) + rank.buffer_bytes + rank.sample_bytes - before[r];
  }
  return bytes;
}

}  // namespace

std::int64_t batches_in_flight(const spec::Pipeline& pipeline) {
  if (pipeline.schedule == PipelineSchedule::kAuto) {
    return 1;
  }
  return pipeline::schedule_called(to_string(pipeline.schedule)).looks_ahead ? 2 : 1;
}

std::vector<double> rank_bytes(const Estimator& estimator,
                               const spec::Plan& plan,
                               const PlanCost& cost,
                               const spec::Pipeline& pipeline) {
  return bytes_under(estimator, plan, cost, memory_of(estimator, plan, std::nullopt), pipeline);
}

double step_without_reads_s(const StepShape& shape,
                            const PlanCost& cost,
                            const spec::Pipeline& pipeline) {
  StageSeconds seconds = stage_seconds(shape, cost);
  seconds.reads.clear();
  return walked_step_s(seconds, pipeline::schedule_called(to_string(pipeline.schedule)),
                       walk_cuts(shape, pipeline));
}

std::vector<PipelineOption> walked_options(const StepShape& shape, const PlanCost& cost) {
  const StageSeconds seconds = stage_seconds(shape, cost);
  std::vector<PipelineOption> options;
  for (const PipelineSchedule schedule : kSchedules) {
    PipelineOption best{.pipeline = {}, .step_s = std::numeric_limits<double>::infinity()};
    for (const spec::Pipeline& pipeline : tried(shape, schedule)) {
      const double step_s = walked_step_s(seconds, pipeline::schedule_called(to_string(schedule)),
                                          walk_cuts(shape, pipeline));
      if (step_s < best.step_s) {
        best.pipeline = pipeline;
        best.step_s = step_s;
      }
    }
    options.push_back(best);
  }
  return options;
}

std::vector<PipelineOption> pipeline_options(const Estimator& estimator,
                                             const spec::Plan& plan,
                                             const PlanCost& cost) {
  const StepShape& shape = estimator.shape();
  const std::vector<double> before = memory_of(estimator, plan, std::nullopt);
  std::vector<PipelineOption> options = walked_options(shape, cost);
  for (PipelineOption& one : options) {
    const std::vector<double> bytes = bytes_under(estimator, plan, cost, before, one.pipeline);
    one.memory_bytes = std::max(0.0, *std::max_element(bytes.begin(), bytes.end()));
    one.fits = one.memory_bytes <= topology::table_capacity(shape.cluster);
  }
  return options;
}

std::size_t choose_pipeline(const spec::Pipeline& asked,
                            const std::vector<PipelineOption>& options) {
  if (asked.schedule != PipelineSchedule::kAuto) {
    const auto found = std::ranges::find(
        options, asked.schedule, [](const PipelineOption& one) { return one.pipeline.schedule; });
    WEFT_CHECK(found != options.end(), "schedule '{}' was not predicted",
               to_string(asked.schedule));
    return static_cast<std::size_t>(found - options.begin());
  }
  std::size_t best = 0;
  for (std::size_t i = 1; i < options.size(); ++i) {
    const bool gains = options[i].step_s <= (1.0 - kLeastGain) * options.front().step_s;
    if (gains && options[i].fits && options[i].step_s < options[best].step_s) {
      best = i;
    }
  }
  return best;
}

}  // namespace weft::planner
