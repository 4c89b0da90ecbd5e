#include "weft/planner/resolve_parts.h"

#include <algorithm>

#include "weft/base/error.h"
#include "weft/spec/walk.h"

namespace weft::planner {

std::int64_t resolve_parts(const spec::Config& config, std::int64_t ranks) {
  constexpr std::int64_t kDefaultParts = 8;
  const std::int64_t parts = config.numerics.parts;
  constexpr auto kMost = static_cast<std::int64_t>(spec::kMaxRanks);
  if (ranks > kMost) {
    fail(ErrorCode::kConfig,
         "numerics.parts: {} ranks need a part each, and there are {} parts at most; run on {} "
         "ranks or fewer",
         ranks, kMost, kMost);
  }
  if (parts == 0) {
    return std::max(kDefaultParts, ranks);
  }
  if (parts < ranks) {
    fail(ErrorCode::kConfig,
         "numerics.parts: {} parts cannot be spread over {} ranks, each needs one at least; set "
         "numerics.parts={} or more, or run on {} ranks",
         parts, ranks, ranks, parts);
  }
  return parts;
}

}  // namespace weft::planner
