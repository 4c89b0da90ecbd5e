/// Private to planner/: what a step reads from the disks, by table, beside what it would read with
/// other divisions of the memory for caches, and with more of it or less.
#pragma once

#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "weft/base/text_lines.h"
#include "weft/planner/plan_report.h"
#include "weft/planner/tier_use.h"

namespace weft::planner {

/// Lines of `tiers`, those of the report's best plan: one of each table, one of all, and some of
/// all with other sizes of Tiers::cache_bytes. REQUIRES: one of the tiers is on disks.
void write_reads(TextLines& text, const PlanReport& report, const std::vector<ShardTier>& tiers);

/// Adds the same as `reads`, where a tier is on disks.
void add_reads(nlohmann::json& out, const PlanReport& report, const std::vector<ShardTier>& tiers);

}  // namespace weft::planner
