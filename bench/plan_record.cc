#include "bench/plan_record.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <utility>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "weft/base/error.h"
#include "weft/topology/yaml.h"

namespace weft::bench {
namespace {

using nlohmann::json;

constexpr const char* kMeasured = "measured.json";

std::string cluster_file(const std::string& ranks, const std::string& threads) {
  return fmt::format("cluster_{}x{}.yaml", ranks, threads);
}

std::string path_in(const std::string& folder, const std::string& name) {
  return (std::filesystem::path(folder) / name).string();
}

void write_text(const std::string& path, const std::string& text) {
  std::ofstream file(path);
  file << text;
  file.flush();
  if (!file) {
    fail(ErrorCode::kIo, "cannot write {}; is the folder there, and has the disk room?", path);
  }
}

json to_json(const Seconds& seconds) {
  json parts = json::object();
  for (const StepPart part : planner::kPredictedParts) {
    parts[std::string(to_string(part))] = seconds.parts[static_cast<std::size_t>(part)];
  }
  return {{"step", seconds.step}, {"parts", parts}, {"other", seconds.other}};
}

Seconds seconds_of(const json& node) {
  Seconds seconds{.step = node.at("step"), .other = node.at("other")};
  for (const StepPart part : planner::kPredictedParts) {
    seconds.parts[static_cast<std::size_t>(part)] =
        node.at("parts").value(std::string(to_string(part)), 0.0);
  }
  return seconds;
}

topology::Rate best(topology::Rate a, const topology::Rate& b) {
  a.value = std::max(a.value, b.value);
  return a;
}

topology::Amount least(topology::Amount a, const topology::Amount& b) {
  a.value = std::min(a.value, b.value);
  return a;
}

/// The case that `parameters` name, or none.
std::vector<PlanFigures> find_case(const std::map<std::string, std::string>& parameters) {
  const std::int64_t ranks = std::stoll(parameters.at("ranks"));
  for (const PlanGroup& group : plan_groups(ranks, false)) {
    if (group.model.name != parameters.at("model") ||
        std::to_string(group.batch) != parameters.at("batch")) {
      continue;
    }
    for (PlanCase& one : plan_cases(group, ranks)) {
      if (one.plan == parameters.at("plan")) {
        return {plan_figures(group, std::move(one), ranks, std::stoll(parameters.at("threads")),
                             parameters.at("backend"))};
      }
    }
  }
  std::fprintf(stderr, "plan_bench: there is no case %s, plan %s any more\n",
               parameters.at("model").c_str(), parameters.at("plan").c_str());
  return {};
}

json read_json(const std::string& path) {
  std::ifstream file(path);
  if (!file) {
    fail(ErrorCode::kIo, "cannot read {}; --save writes such a folder", path);
  }
  return json::parse(file);
}

}  // namespace

PlanFigures plan_figures(const PlanGroup& group,
                         PlanCase chosen,
                         std::int64_t ranks,
                         std::int64_t threads,
                         const std::string& backend) {
  PlanFigures figures;
  figures.parameters = {{"model", group.model.name},
                        {"batch", std::to_string(group.batch)},
                        {"ranks", std::to_string(ranks)},
                        {"threads", std::to_string(threads)},
                        {"backend", backend},
                        {"cases", group.model.held_out ? "held out" : "looked at"}};
  for (const auto& [key, value] : figures.parameters) {
    figures.group += key + value + " ";
  }
  if (chosen.is_of_schedule()) {
    figures.parameters["cases"] = "schedules";
    figures.parameters["schedule"] = to_string(chosen.config.pipeline.schedule);
  }
  figures.parameters["plan"] = chosen.plan;
  figures.chosen = std::move(chosen);
  return figures;
}

topology::Cluster best_of(const std::vector<topology::Cluster>& rounds) {
  topology::Cluster cluster = rounds.front();
  for (const topology::Cluster& other : rounds) {
    topology::Compute& compute = cluster.compute;
    compute.gemm_fp32 = best(compute.gemm_fp32, other.compute.gemm_fp32);
    compute.gemm_bf16 = best(compute.gemm_bf16, other.compute.gemm_bf16);
    compute.copy = best(compute.copy, other.compute.copy);
    compute.repeat = least(compute.repeat, other.compute.repeat);
    compute.draw = least(compute.draw, other.compute.draw);
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

void save_measured(const std::string& folder, const std::vector<ShapeFigures>& shapes) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  json cases = json::array();
  for (const ShapeFigures& shape : shapes) {
    for (const PlanFigures& one : shape.cases) {
      json rounds = json::array();
      for (const Seconds& round : one.measured) {
        rounds.push_back(to_json(round));
      }
      cases.push_back({{"parameters", one.parameters},
                       {"measured", rounds},
                       {"tables", one.counted.tables},
                       {"buffers", one.counted.buffers}});
    }
    const auto& parameters = shape.cases.front().parameters;
    write_text(path_in(folder, cluster_file(parameters.at("ranks"), parameters.at("threads"))),
               topology::to_yaml(best_of(shape.clusters)));
  }
  write_text(path_in(folder, kMeasured), cases.dump(1) + "\n");
}

std::vector<ShapeFigures> load_measured(const std::string& folder) {
  const std::string path = path_in(folder, kMeasured);
  std::map<std::string, std::size_t> place;  // of a shape, by its cluster's file
  std::vector<ShapeFigures> shapes;
  try {
    for (const json& node : read_json(path)) {
      const std::map<std::string, std::string> parameters = node.at("parameters");
      for (PlanFigures& one : find_case(parameters)) {
        for (const json& round : node.at("measured")) {
          one.measured.push_back(seconds_of(round));
        }
        one.counted = {.tables = node.at("tables"), .buffers = node.at("buffers")};
        const std::string cluster = cluster_file(parameters.at("ranks"), parameters.at("threads"));
        if (place.try_emplace(cluster, shapes.size()).second) {
          shapes.push_back(
              {.cases = {}, .clusters = {topology::load_cluster(path_in(folder, cluster))}});
        }
        shapes[place[cluster]].cases.push_back(std::move(one));
      }
    }
  } catch (const json::exception& error) {
    fail(ErrorCode::kConfig, "{} is not what --save writes: {}", path, error.what());
  }
  return shapes;
}

}  // namespace weft::bench
