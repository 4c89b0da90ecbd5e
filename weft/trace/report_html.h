/// A report as one HTML page that needs nothing else: no network, no script.
#pragma once

#include <string>
#include <vector>

#include "weft/base/html_page.h"
#include "weft/trace/report.h"
#include "weft/trace/trace_file.h"

namespace weft::trace {

/// Timeline of one step over the ranks, breakdown per rank, bytes by link, who is waited for, and
/// the tables of to_text(). The step is the one of median length; of more than 32 ranks the
/// timeline has those that are waited for most. Follows the reader's choice of light or dark.
std::string to_html(const Report& report,
                    const std::vector<RankWork>& trace,
                    const PageOrigin& origin = {});

/// What changed, part by part.
std::string diff_to_html(const Report& before, const Report& after, const PageOrigin& origin = {});

}  // namespace weft::trace
