/// What a search found, for people and for programs.
#pragma once

#include <cstdint>
#include <string>

#include "weft/base/html_page.h"
#include "weft/planner/search.h"

namespace weft::planner {

/// What a report is about; all must outlive it.
struct PlanReport {
  const spec::Config& config;
  const topology::Cluster& cluster;
  const Workload& workload;
  const SearchResult& result;
};

/// By which the proposals were predicted.
Estimator estimator_of(const PlanReport& report);

/// Why a table is held as the best plan has it, in a few words.
std::string why(const PlanReport& report, std::int64_t table);

/// Tables of at most 120 columns; of many ranks and tables those that cost most.
std::string to_text(const PlanReport& report);

/// Everything, also of the other proposals; docs/planner.md has the members.
std::string to_json(const PlanReport& report);

/// One page that opens offline: ranks and parts as plots, tables with their reasons.
std::string to_html(const PlanReport& report, const PageOrigin& origin = {});

}  // namespace weft::planner
