#include "weft/planner/mesh_report.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "weft/base/text.h"

namespace weft::planner {
namespace {

using nlohmann::json;

constexpr std::size_t kMostLayouts = 36;

std::string layout_of(const MeshOption& option) {
  return option.groups == 1 ? "-" : std::string(to_string(option.layout));
}

std::string form_of(const MeshOption& option) {
  return option.groups == 1 ? "-" : std::string(to_string(option.sync));
}

/// "chosen", "does not fit", "not asked for", or nothing.
std::string remark(const PlanReport& report, std::size_t index) {
  const MeshOption& option = report.result.meshes[index];
  if (index == report.result.chosen) {
    return "chosen";
  }
  return !option.fits ? "does not fit" : option.asked ? "" : "not asked for";
}

/// Of many the fastest form of every number of groups and layout.
std::vector<std::size_t> shown_options(const PlanReport& report) {
  const std::vector<MeshOption>& all = report.result.meshes;
  std::vector<std::size_t> shown;
  for (std::size_t i = 0; i < all.size(); ++i) {
    const bool begins = shown.empty() || all[shown.back()].groups != all[i].groups ||
                        all[shown.back()].layout != all[i].layout;
    if (all.size() <= kMostLayouts || begins) {
      shown.push_back(i);
    } else if (shown.back() != report.result.chosen &&
               (i == report.result.chosen ||
                (all[i].asked &&
                 (!all[shown.back()].asked || all[i].step_s < all[shown.back()].step_s)))) {
      shown.back() = i;
    }
  }
  return shown;
}

/// The option that the rule of layouts is about: the chosen one, or of one group the fastest other.
const MeshOption* ruled(const PlanReport& report) {
  const std::vector<MeshOption>& all = report.result.meshes;
  if (all.empty()) {
    return nullptr;
  }
  if (const MeshOption& chosen = all[report.result.chosen]; chosen.groups > 1) {
    return chosen.rule.limit() > 0.0 ? &chosen : nullptr;  // else nothing is sharded
  }
  const MeshOption* best = nullptr;
  for (const MeshOption& one : all) {
    if (one.groups > 1 && one.asked && one.rule.limit() > 0.0 &&
        (best == nullptr || one.step_s < best->step_s)) {
      best = &one;
    }
  }
  return best;
}

/// With its numbers.
std::string rule_line(const MeshOption& option) {
  const LayoutRule& rule = option.rule;
  const char* const compares = rule.holds() ? "<" : ">=";
  return fmt::format("{} x {}, {}: W {} τ g A / 2, {} {} {} x {} x {} / 2 = {}", option.groups,
                     option.ranks, to_string(option.sync), compares,
                     format_estimated_bytes(rule.replica_bytes), compares, rule.sync_every,
                     rule.ranks, format_estimated_bytes(rule.exchanged_bytes),
                     format_estimated_bytes(rule.limit()));
}

std::string verdict(const MeshOption& option) {
  return option.both_layouts
             ? std::string("on these hosts both layouts are alike")
             : fmt::format("{} sends less between hosts",
                           option.rule.holds() ? "local_all_to_all" : "local_all_reduce");
}

json value_of(const MeshOption& option) {
  json one = {{"groups", option.groups},
              {"ranks", option.ranks},
              {"asked", option.asked},
              {"fits", option.fits},
              {"step_s", option.step_s},
              {"table_bytes", option.table_bytes},
              {"memory_bytes", option.memory_bytes},
              {"network_bytes", option.network_bytes}};
  if (option.groups > 1) {
    one["layout"] = std::string(to_string(option.layout));
    one["both_layouts"] = option.both_layouts;
    one["sync"] = std::string(to_string(option.sync));
    one["sync_every"] = option.sync_every;
    one["sync_s"] = option.sync_s;
    one["sync_bytes"] = option.sync_bytes;
    one["rule"] = {{"replica_bytes", option.rule.replica_bytes},
                   {"exchanged_bytes", option.rule.exchanged_bytes},
                   {"limit_bytes", option.rule.limit()},
                   {"local_all_to_all", option.rule.holds()}};
  }
  return one;
}

}  // namespace

std::string mesh_line(const PlanReport& report) {
  const MeshCluster& mesh = *report.result.mesh;
  return mesh.groups == 1 ? std::string()
                          : fmt::format("{} groups of {}, {}, sync {} every {}", mesh.groups,
                                        counted(mesh.ranks(), "rank"), to_string(mesh.layout),
                                        to_string(mesh.sync), counted(mesh.sync_every, "step"));
}

void write_meshes(TextLines& text, const PlanReport& report) {
  const std::vector<MeshOption>& all = report.result.meshes;
  if (all.empty()) {
    return;
  }
  text.line("");
  text.line(
      "Replica groups: ms of a step and of one sync; bytes of the rank with most: sent in a sync,");
  text.line("to other hosts in a step, memory in all");
  text.line("{:<12} {:<16} {:<9} {:>5} {:>10} {:>10} {:>11} {:>11} {:>11}", "M x N", "layout",
            "form", "every", "step", "sync", "a sync", "to others", "memory");
  const std::vector<std::size_t> shown = shown_options(report);
  for (const std::size_t i : shown) {
    const MeshOption& one = all[i];
    text.line("{:<12} {:<16} {:<9} {:>5} {:>10.3f} {:>10.3f} {:>11} {:>11} {:>11}  {}",
              fmt::format("{} x {}", one.groups, one.ranks), layout_of(one), form_of(one),
              one.groups == 1 ? std::string("-") : std::to_string(one.sync_every),
              to_ms(one.step_s), to_ms(one.sync_s), format_estimated_bytes(one.sync_bytes),
              format_estimated_bytes(one.network_bytes), format_estimated_bytes(one.memory_bytes),
              remark(report, i));
  }
  if (shown.size() < all.size()) {
    text.line("... {} slower forms", all.size() - shown.size());
  }
  if (report.result.schedule_decided) {
    text.line("chosen by steps of sync; its plan is the one that is shortest under its schedule");
  }
  if (const MeshOption* const one = ruled(report)) {
    text.line("{}", rule_line(*one));
    text.line("so {}", verdict(*one));
    text.line(
        "(W: rows and state of a group in one sync, A: what a rank exchanges in a step, g: its "
        "group's ranks)");
  }
}

void add_meshes(json& out, const PlanReport& report) {
  const MeshCluster& mesh = *report.result.mesh;
  out["mesh"] = {{"groups", mesh.groups}, {"ranks", mesh.ranks()}};
  if (mesh.groups > 1) {
    out["mesh"]["layout"] = std::string(to_string(mesh.layout));
    out["mesh"]["sync"] = std::string(to_string(mesh.sync));
    out["mesh"]["sync_every"] = mesh.sync_every;
  }
  out["meshes"] = json::array();
  for (const MeshOption& one : report.result.meshes) {
    out["meshes"].push_back(value_of(one));
  }
}

void draw_meshes(HtmlPage& page, const PlanReport& report) {
  const std::vector<MeshOption>& all = report.result.meshes;
  if (all.empty()) {
    return;
  }
  const MeshOption* const one = ruled(report);
  page.section("Replica groups", one == nullptr
                                     ? std::string("Figures of the rank with most.")
                                     : fmt::format("Figures of the rank with most. {}: {}.",
                                                   rule_line(*one), verdict(*one)));
  page.add(
      "<div class=\"wide\"><table><tr><th>groups x ranks</th><th>layout</th><th>form</th>"
      "<th>every</th><th>step, ms</th><th>sync, ms</th><th>sent in a sync</th>"
      "<th>to other hosts in a step</th><th>memory</th><th></th></tr>\n");
  for (std::size_t i = 0; i < all.size(); ++i) {
    page.add(
        "<tr><td>{} x {}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.3f}</td><td>{:.3f}</td>"
        "<td>{}</td><td>{}</td><td>{}</td><td>{}</td></tr>\n",
        all[i].groups, all[i].ranks, layout_of(all[i]), form_of(all[i]), all[i].sync_every,
        to_ms(all[i].step_s), to_ms(all[i].sync_s), format_estimated_bytes(all[i].sync_bytes),
        format_estimated_bytes(all[i].network_bytes), format_estimated_bytes(all[i].memory_bytes),
        remark(report, i));
  }
  page.add("</table></div>\n");
}

}  // namespace weft::planner
