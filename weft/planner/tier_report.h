/// Private to planner/: what a report says of tables that are not all in memory. Of a job without
/// such tables nothing.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "weft/base/html_page.h"
#include "weft/base/text_lines.h"
#include "weft/planner/plan_report.h"

namespace weft::planner {

/// Bytes of their rows and places, and their caches.
void write_tiers(TextLines& text, const PlanReport& report);

/// The member `tiers`: the figures of each shard.
void add_tiers(nlohmann::json& out, const PlanReport& report);

/// The figures of each shard.
void draw_tiers(HtmlPage& page, const PlanReport& report);

}  // namespace weft::planner
