#include "bench/step_figures.h"

#include <algorithm>
#include <string>
#include <utility>

namespace weft::bench {
namespace {

/// One value per turn.
template <typename Value>
std::vector<double> each(const std::vector<Turn>& turns, const Value& value) {
  std::vector<double> values;
  for (const Turn& turn : turns) {
    values.push_back(value(turn));
  }
  return values;
}

/// Beside others, so not a part of the sum.
bool runs_beside(const spec::Config& config, std::size_t part) {
  const auto which = static_cast<StepPart>(part);
  return config.train.overlap && (which == StepPart::kReduce || which == StepPart::kSyncReplicas);
}

double limit_sum(const spec::Config& config, const PartLimits& limits) {
  double sum = 0.0;
  for (std::size_t p = 0; p < limits.size(); ++p) {
    sum += runs_beside(config, p) ? 0.0 : limits[p];
  }
  return sum;
}

Figure figure(std::string name, std::string unit, Better better, std::vector<double> values) {
  return {std::move(name), {}, std::move(unit), better, std::move(values), {}};
}

/// Time that no part has: hand-offs, and waiting for the dense and the sync stream.
double rest_s(const spec::Config& config, const Turn& turn) {
  double rest = turn.step_s;
  for (std::size_t p = 0; p < turn.parts.size(); ++p) {
    rest -= runs_beside(config, p) ? 0.0 : turn.parts[p];
  }
  return rest;
}

std::vector<Figure> whole_step(const spec::Config& config, const std::vector<Turn>& turns) {
  const auto batch = static_cast<double>(config.batch_size);
  const auto limits = each(turns, [&](const Turn& t) { return limit_sum(config, t.limits); });
  Figure rate = figure("step", "samples/s", Better::kHigher,
                       each(turns, [&](const Turn& t) { return batch / t.step_s; }));
  Figure time = figure("step_ms", "ms", Better::kLower,
                       each(turns, [](const Turn& t) { return 1e3 * t.step_s; }));
  rate.limit = time.limit = Limit{"sum of the parts' limits", {}};
  for (const double limit : limits) {
    rate.limit->values.push_back(batch / limit);
    time.limit->values.push_back(1e3 * limit);
  }
  return {rate, time};
}

bool has_tiers(const spec::Config& config) {
  return std::any_of(config.tables.begin(), config.tables.end(), [](const spec::Table& table) {
    return table.memory.tier != spec::MemoryTier::kDense;
  });
}

}  // namespace

double sparse_seconds(const train::StepTimes& times) {
  double sum = 0.0;
  bool waits = false;
  for (const StepPart part :
       {StepPart::kExchangeIds, StepPart::kFetch, StepPart::kLookup, StepPart::kOutputDist,
        StepPart::kCoalesce, StepPart::kGradDist, StepPart::kUpdateRows}) {
    const bool is_beside = times.beside[static_cast<std::size_t>(part)];
    sum += is_beside ? 0.0 : times.of(part).seconds();
    waits = waits || is_beside;
  }
  return waits ? sum + times.waited_s : sum;
}

std::vector<Figure> step_figures(const spec::Config& config, const std::vector<Turn>& turns) {
  std::vector<Figure> figures = whole_step(config, turns);
  for (std::size_t p = 0; p < kStepParts; ++p) {
    Figure part =
        figure("part." + std::string(to_string(static_cast<StepPart>(p))), "ms", Better::kLower,
               each(turns, [p](const Turn& t) { return 1e3 * t.parts[p]; }));
    if (turns.front().limits[p] > 0.0) {
      part.limit = {"bench/step_work.h",
                    each(turns, [p](const Turn& t) { return 1e3 * t.limits[p]; })};
    }
    figures.push_back(std::move(part));
  }
  figures.push_back(figure("part.rest", "ms", Better::kLower,
                           each(turns, [&](const Turn& t) { return 1e3 * rest_s(config, t); })));
  figures.push_back(figure("sparse_ms", "ms", Better::kLower,
                           each(turns, [](const Turn& t) { return 1e3 * t.sparse_s; })));
  if (has_tiers(config)) {
    figures.push_back(figure("misses", "rows", Better::kLower,
                             each(turns, [](const Turn& t) { return t.misses; })));
  }
  Figure dense = figure(
      "dense", "GFLOP/s", Better::kHigher, each(turns, [](const Turn& t) {
        const auto seconds = [&](StepPart part) { return t.parts[static_cast<std::size_t>(part)]; };
        return t.dense_flops / 1e9 /
               (seconds(StepPart::kForwardBackward) + seconds(StepPart::kWeightGradients));
      }));
  dense.limit = {"product of 1024 x 1024 matrices",
                 each(turns, [](const Turn& t) { return t.peak_flops_per_s / 1e9; })};
  figures.push_back(std::move(dense));
  if (turns.front().step_with_reader_s > 0.0) {
    const auto batch = static_cast<double>(config.batch_size);
    figures.push_back(
        figure("step_with_reader", "samples/s", Better::kHigher,
               each(turns, [&](const Turn& t) { return batch / t.step_with_reader_s; })));
  }
  return figures;
}

}  // namespace weft::bench
