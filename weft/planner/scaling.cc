#include "weft/planner/scaling.h"

#include <cstddef>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/base/text.h"
#include "weft/base/text_lines.h"
#include "weft/planner/search.h"
#include "weft/spec/yaml.h"

namespace weft::planner {
namespace {

using nlohmann::json;

ScalingPoint point_of(const spec::Config& config,
                      const topology::Cluster& cluster,
                      const Workload& workload,
                      std::int64_t ranks) {
  const SearchResult found = search(config, resized(cluster, ranks), workload);
  return {.ranks = ranks,
          .batch_size = config.batch_size,
          .fits = found.best().fits(),
          .step_s = found.step_s()};
}

/// A batch that no configuration may have is an error that names the number of ranks.
void check_batch(const spec::Config& weak, std::int64_t ranks) {
  try {
    spec::validate(weak);
  } catch (const Error& error) {
    fail(error.code(), "weak scaling to {}, {} samples each: {}; name other numbers of ranks",
         counted(ranks, "rank"), format_count(weak.batch_size / ranks), error.what());
  }
}

/// "12.345", or behind it a star where the plan does not fit.
std::string step_text(const ScalingPoint& point) {
  return fmt::format("{:.3f}{}", to_ms(point.step_s), point.fits ? " " : "*");
}

std::string columns(std::span<const ScalingPoint> points, std::size_t index) {
  const ScalingPoint& point = points[index];
  return fmt::format("{:>14} {:>11} {:>13} {:>7.2f}", format_count(point.batch_size),
                     step_text(point),
                     format_count(static_cast<std::int64_t>(point.samples_per_s())),
                     scaling_efficiency(points, index));
}

json to_member(std::span<const ScalingPoint> points) {
  json out = json::array();
  for (std::size_t i = 0; i < points.size(); ++i) {
    out.push_back({{"ranks", points[i].ranks},
                   {"batch_size", points[i].batch_size},
                   {"fits", points[i].fits},
                   {"step_s", points[i].step_s},
                   {"samples_per_s", points[i].samples_per_s()},
                   {"efficiency", scaling_efficiency(points, i)}});
  }
  return out;
}

}  // namespace

Scaling predict_scaling(const spec::Config& config,
                        const topology::Cluster& cluster,
                        const Workload& workload,
                        std::span<const std::int64_t> ranks) {
  Scaling scaling;
  scaling.cluster = cluster.name;
  spec::Config weak = config;
  for (const std::int64_t count : ranks) {
    scaling.strong.push_back(point_of(config, cluster, workload, count));
    weak.batch_size = config.batch_size * count / ranks.front();
    check_batch(weak, count);
    scaling.weak.push_back(weak.batch_size == config.batch_size
                               ? scaling.strong.back()
                               : point_of(weak, cluster, workload, count));
  }
  return scaling;
}

double scaling_efficiency(std::span<const ScalingPoint> points, std::size_t index) {
  const auto of_a_rank = [](const ScalingPoint& point) {
    return point.samples_per_s() / static_cast<double>(point.ranks);
  };
  return of_a_rank(points[index]) / of_a_rank(points.front());
}

std::string to_text(const Scaling& scaling) {
  TextLines text;
  text.line("Predicted scaling on cluster {}: the best plan for each number of ranks",
            scaling.cluster);
  text.line("");
  text.line("{:>6}   {:<47}   {}", "", "strong: one batch for all ranks",
            "weak: as many samples a rank");
  text.line("{0:>6}   {1:>14} {2:>10}  {3:>13} {4:>7}   {1:>14} {2:>10}  {3:>13} {4:>7}", "ranks",
            "batch", "step, ms", "samples/s", "linear");
  bool all_fit = true;
  for (std::size_t i = 0; i < scaling.strong.size(); ++i) {
    text.line("{:>6}   {}   {}", format_count(scaling.strong[i].ranks), columns(scaling.strong, i),
              columns(scaling.weak, i));
    all_fit = all_fit && scaling.strong[i].fits && scaling.weak[i].fits;
  }
  text.line("");
  text.line("linear: samples per second and rank over those of the first line");
  if (!all_fit) {
    text.line("*: does not fit into the memory of the ranks; the step is as if it did");
  }
  return text.take();
}

std::string to_json(const Scaling& scaling) {
  const json out = {{"cluster", scaling.cluster},
                    {"strong", to_member(scaling.strong)},
                    {"weak", to_member(scaling.weak)}};
  return out.dump(1) + "\n";
}

}  // namespace weft::planner
