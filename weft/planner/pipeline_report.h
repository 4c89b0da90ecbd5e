/// Private to planner/: what a report says of schedules.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "weft/base/html_page.h"
#include "weft/base/text_lines.h"
#include "weft/planner/plan_report.h"

namespace weft::planner {

/// A line: what a step takes under the job's schedule.
void write_step(TextLines& text, const PlanReport& report);

/// A table of all schedules.
void write_pipelines(TextLines& text, const PlanReport& report);

/// Members `step_s`, `schedule` and `pipelines` of the report.
void add_pipelines(nlohmann::json& out, const PlanReport& report);

void draw_pipelines(HtmlPage& page, const PlanReport& report);

}  // namespace weft::planner
