#include "bench/plan_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "bench/plan_scores.h"
#include "bench/timing.h"
#include "weft/planner/pipeline_choice.h"
#include "weft/planner/workload.h"

namespace weft::bench {
namespace {

using planner::PlanCost;

constexpr auto kStep = [](const Seconds& s) { return s.step; };

using OfMemory = double (*)(const RankMemory&, std::size_t rank);

constexpr std::array<std::pair<const char*, OfMemory>, 2> kMemories = {
    {{"memory",
      [](const RankMemory& m, std::size_t rank) { return m.tables[rank] + m.buffers[rank]; }},
     {"memory.buffers", [](const RankMemory& m, std::size_t rank) { return m.buffers[rank]; }}}};

constexpr auto part_of(StepPart part) {
  return [p = static_cast<std::size_t>(part)](const Seconds& s) { return s.parts[p]; };
}

std::string name_of(StepPart part) {
  return std::string(to_string(part));
}

std::vector<double> times(const PlanFigures& one, const auto& of) {
  std::vector<double> values;
  for (const Seconds& round : one.measured) {
    values.push_back(1e3 * of(round));
  }
  return values;
}

/// In the quietest round.
double quiet(const PlanFigures& one, const auto& of) {
  const std::vector<double> values = times(one, of);
  return *std::min_element(values.begin(), values.end());
}

double predicted(const PlanFigures& one, const auto& of) {
  return 1e3 * of(one.predicted);
}

/// Worth a line: it takes time, and is predicted to.
bool happens(const PlanFigures& one, const auto& of) {
  return quiet(one, of) > 0.0 && predicted(one, of) > 0.0;
}

void add_case(std::vector<Figure>& figures, const PlanFigures& one) {
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
  for (const StepPart part : planner::kPredictedParts) {
    if (happens(one, part_of(part))) {
      add("part." + name_of(part), "ms", quiet(one, part_of(part)), predicted(one, part_of(part)));
    }
  }
  add("part.other", "ms", quiet(one, [](const Seconds& s) { return s.other; }), std::nullopt);
  for (std::size_t rank = 0; rank < one.counted.tables.size(); ++rank) {
    for (const auto& [name, of] : kMemories) {
      add(name, "MiB", of(one.counted, rank) / 0x1p20, of(one.expected, rank) / 0x1p20);
      figures.back().parameters["rank"] = std::to_string(rank);
    }
  }
}

/// The step alone: parts run beside each other, and no set of cases has it.
void add_schedule(std::vector<Figure>& figures, const PlanFigures& one) {
  figures.push_back({.name = "schedule",
                     .parameters = one.parameters,
                     .unit = "ms",
                     .better = Better::kLower,
                     .values = {quiet(one, kStep)},
                     .limit = Limit{"predicted", {predicted(one, kStep)}}});
}

/// A figure of several cases.
struct Summary {
  std::vector<Figure>& figures;
  std::string cases;  ///< which

  void add(const std::string& name,
           const std::string& of,
           const std::string& unit,
           std::vector<double> values,
           Better better = Better::kLower) {
    if (!values.empty()) {
      figures.push_back({.name = name,
                         .parameters = {{"of", of}, {"cases", cases}},
                         .unit = unit,
                         .better = better,
                         .values = std::move(values),
                         .limit = {}});
    }
  }
};

using Cases = std::vector<const PlanFigures*>;

/// Predicted over measured, less 1: its size and itself. And how far apart rounds of a case are.
void add_errors(Summary& summary, const Cases& cases) {
  const auto add = [&](const std::string& name, const auto& of) {
    std::vector<double> size, bias, noise;
    for (const PlanFigures* one : cases) {
      if (happens(*one, of)) {
        bias.push_back(100.0 * (predicted(*one, of) / quiet(*one, of) - 1.0));
        size.push_back(std::abs(bias.back()));
        noise.push_back(100.0 * (median(times(*one, of)) / quiet(*one, of) - 1.0));
      }
    }
    summary.add("error", name, "%", std::move(size));
    summary.add("bias", name, "%", std::move(bias));
    summary.add("noise", name, "%", std::move(noise));
  };
  add("step", kStep);
  for (const StepPart part : planner::kPredictedParts) {
    add(name_of(part), part_of(part));
  }
}

void add_memory_errors(Summary& summary, const Cases& cases) {
  for (const auto& [name, of] : kMemories) {
    std::vector<double> size, bias;
    for (const PlanFigures* one : cases) {
      for (std::size_t rank = 0; rank < one->counted.tables.size(); ++rank) {
        bias.push_back(100.0 * (of(one->expected, rank) / of(one->counted, rank) - 1.0));
        size.push_back(std::abs(bias.back()));
      }
    }
    summary.add("error", name, "%", std::move(size));
    summary.add("bias", name, "%", std::move(bias));
  }
}

struct Sides {
  std::vector<double> predicted, measured;
};

/// Whether what is predicted to be faster is: within a model and batch, and over all.
void add_order(Summary& summary, const Cases& cases) {
  std::map<std::string, Sides> groups;
  Sides all;
  for (const PlanFigures* one : cases) {
    for (Sides* sides : {&groups[one->group], &all}) {
      sides->predicted.push_back(predicted(*one, kStep));
      sides->measured.push_back(quiet(*one, kStep));
    }
  }
  const auto add = [&](const std::string& name, const std::string& of, std::vector<double> values) {
    summary.add(name, of, "1", std::move(values), Better::kHigher);
  };
  add("rank_correlation", "all", {rank_correlation(all.predicted, all.measured)});
  std::vector<double> within, spreads;
  for (const auto& [name, sides] : groups) {
    if (sides.measured.size() > 2) {
      const auto [least, most] = std::minmax_element(sides.measured.begin(), sides.measured.end());
      within.push_back(rank_correlation(sides.predicted, sides.measured));
      spreads.push_back(*most / *least);
    }
  }
  add("rank_correlation", "within", within);
  add("slowest_over_fastest", "within", spreads);
  for (const double apart : {0.0, 0.05, 0.2}) {
    PairCount pairs;
    for (const auto& [name, sides] : groups) {
      pairs += ordered_pairs(sides.predicted, sides.measured, apart);
    }
    if (pairs.all > 0.0) {
      add("pairs_right", fmt::format("{:.0f} % apart", 100.0 * apart), {pairs.right / pairs.all});
    }
  }
}

}  // namespace

void predict(ShapeFigures& shape) {
  const topology::Cluster cluster = best_of(shape.clusters);
  for (PlanFigures& one : shape.cases) {
    const planner::Workload workload = planner::make_workload(one.chosen.config);
    const planner::Estimator estimator(one.chosen.config, cluster, workload, one.chosen.made.parts);
    const PlanCost cost = estimator.cost(one.chosen.made);
    one.predicted = {.step = cost.step_s, .parts = cost.parts};
    if (one.chosen.is_of_schedule()) {
      const auto options = planner::pipeline_options(estimator, one.chosen.made, cost);
      one.predicted.step =
          options[planner::choose_pipeline(one.chosen.config.pipeline, options)].step_s;
    }
    one.expected = {};
    for (const planner::RankCost& rank : cost.ranks) {
      one.expected.tables.push_back(static_cast<double>(rank.table_bytes));
      one.expected.buffers.push_back(rank.buffer_bytes + rank.sample_bytes);
    }
  }
}

std::vector<Figure> figures_of(const std::vector<PlanFigures>& cases) {
  std::vector<Figure> figures;
  std::map<std::string, Cases> sets;  // by which cases they are
  for (const PlanFigures& one : cases) {
    if (one.chosen.is_of_schedule()) {
      add_schedule(figures, one);
      continue;
    }
    add_case(figures, one);
    sets["all"].push_back(&one);
    sets[one.parameters.at("cases")].push_back(&one);
  }
  for (const auto& [name, some] : sets) {
    Summary summary{figures, name};
    add_errors(summary, some);
    add_memory_errors(summary, some);
    add_order(summary, some);
  }
  return figures;
}

}  // namespace weft::bench
