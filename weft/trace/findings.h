/// Private to trace/: who is to blame. Links and tables of a trace, and what stands out in a
/// report.
#pragma once

#include <vector>

#include "weft/trace/report.h"
#include "weft/trace/trace_file.h"

namespace weft::trace {

/// Between hosts, and inside those whose ranks send messages; slowest first.
std::vector<LinkUse> link_uses(const std::vector<RankWork>& trace);

/// Of all ranks, most bytes first.
std::vector<TableShare> table_shares(const std::vector<RankWork>& trace);

/// Slow link     a host to, or from, which no other host's data comes at half the rate that is
///               usual for the other hosts (their median; from three hosts on).
/// Skewed table  a rank reads 1.25 times the mean bytes of rows, and one table is what it reads
///               more than the mean, or half of it.
/// Straggler     a rank costs the others a twentieth of the step, and twice as much as the next.
std::vector<Finding> find(const Report& report);

}  // namespace weft::trace
