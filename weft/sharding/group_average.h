/// Private to sharding/: what both averages of rows over replica groups share, whether the groups
/// send rows (replica_average.h) or encoded changes (coded_average.h).
#pragma once

#include <cstdint>

namespace weft::sharding {

/// Groups send at most so much of their rows at a time.
inline constexpr std::int64_t kRoundBytes = std::int64_t{64} << 20;

}  // namespace weft::sharding
