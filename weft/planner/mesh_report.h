/// Private to planner/: what a report says of replica groups. Nothing where the configuration asks
/// for one group.
#pragma once

#include <string>

#include <nlohmann/json_fwd.hpp>

#include "weft/base/html_page.h"
#include "weft/base/text_lines.h"
#include "weft/planner/plan_report.h"

namespace weft::planner {

/// "4 groups of 2 ranks, local_all_to_all, sync touched every 4 steps"; of one group empty.
std::string mesh_line(const PlanReport& report);

/// A table of options, most of whose figures are of the rank with most, and the rule of layouts.
void write_meshes(TextLines& text, const PlanReport& report);

/// Members `mesh` and `meshes` of the report.
void add_meshes(nlohmann::json& out, const PlanReport& report);

void draw_meshes(HtmlPage& page, const PlanReport& report);

}  // namespace weft::planner
