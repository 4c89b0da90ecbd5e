#include "bench/report.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/core.h>
#include <nlohmann/json.hpp>

#include "bench/machine.h"
#include "weft/base/error.h"

namespace weft::bench {
namespace {

using Json = nlohmann::ordered_json;

/// Of sorted values, between the two nearest.
double quantile(const std::vector<double>& sorted, double q) {
  const double place = q * static_cast<double>(sorted.size() - 1);
  const auto below = static_cast<std::size_t>(place);
  const std::size_t above = std::min(below + 1, sorted.size() - 1);
  return sorted[below] + (place - std::floor(place)) * (sorted[above] - sorted[below]);
}

Json spread_json(const std::vector<double>& values) {
  const Spread s = spread(values);
  return {{"median", s.median}, {"min", s.min}, {"max", s.max}, {"q1", s.q1}, {"q3", s.q3}};
}

Json figure_json(const Figure& figure) {
  Json json = {{"name", figure.name},
               {"parameters", figure.parameters},
               {"unit", figure.unit},
               {"better", figure.better == Better::kHigher ? "higher" : "lower"},
               {"repetitions", figure.values.size()}};
  json.update(spread_json(figure.values));
  if (figure.limit) {
    Json limit = {{"name", figure.limit->name}, {"repetitions", figure.limit->values.size()}};
    limit.update(spread_json(figure.limit->values));
    json["limit"] = std::move(limit);
    json["share"] = figure.share();
  }
  return json;
}

Json machine_json() {
  const Machine m = this_machine();
  return {{"cpu", m.cpu},     {"cores", m.cores},           {"cache", m.cache},
          {"flags", m.flags}, {"memory_gib", m.memory_gib}, {"huge_pages", m.huge_pages}};
}

Json software_json() {
  const Software s = this_software();
  return {{"kernel", s.kernel}, {"compiler", s.compiler}, {"onednn", s.onednn}, {"weft", s.weft}};
}

std::string parameters_text(const Figure& figure) {
  std::string text;
  for (const auto& [key, value] : figure.parameters) {
    text += fmt::format("{}{}={}", text.empty() ? "" : " ", key, value);
  }
  return text;
}

}  // namespace

Spread spread(std::vector<double> values) {
  WEFT_CHECK(!values.empty(), "a figure without a measurement");
  std::sort(values.begin(), values.end());
  return {.median = quantile(values, 0.5),
          .min = values.front(),
          .max = values.back(),
          .q1 = quantile(values, 0.25),
          .q3 = quantile(values, 0.75)};
}

double Figure::share() const {
  const double own = spread(values).median;
  const double most = spread(limit->values).median;
  return better == Better::kHigher ? own / most : most / own;
}

std::string to_json(const std::string& program, const std::vector<Figure>& figures) {
  Json results = Json::array();
  for (const Figure& figure : figures) {
    results.push_back(figure_json(figure));
  }
  const Json document = {{"format", 1},
                         {"program", program},
                         {"machine", machine_json()},
                         {"software", software_json()},
                         {"results", std::move(results)}};
  return document.dump(1) + "\n";
}

void write_json(const std::string& path,
                const std::string& program,
                const std::vector<Figure>& figures) {
  std::ofstream out(path, std::ios::trunc);
  out << to_json(program, figures);
  out.flush();
  if (!out) {
    fail(ErrorCode::kIo, "cannot write {}; check the folder and its permissions", path);
  }
}

std::string to_text(const std::vector<Figure>& figures) {
  std::string text;
  for (const Figure& figure : figures) {
    const Spread s = spread(figure.values);
    text += fmt::format("{:<34} {:<44} {:>11.5g} {:<9} [{:.4g}, {:.4g}]", figure.name,
                        parameters_text(figure), s.median, figure.unit, s.q1, s.q3);
    if (figure.limit) {
      text += fmt::format("  {:5.1f} % of {:.5g} ({})", 100.0 * figure.share(),
                          spread(figure.limit->values).median, figure.limit->name);
    }
    text += "\n";
  }
  return text;
}

}  // namespace weft::bench
