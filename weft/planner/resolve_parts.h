/// Private to planner/: how many parts a job has.
#pragma once

#include <cstdint>

#include "weft/spec/config.h"

namespace weft::planner {

/// Returns numerics.parts, resolved for so many ranks: each needs one at least. Throws
/// Error(kConfig) where there are fewer parts, or more ranks than there may be parts.
std::int64_t resolve_parts(const spec::Config& config, std::int64_t ranks);

}  // namespace weft::planner
