/// Private to sharding/: how far ahead loops ask for memory.
#pragma once

#include <cstdint>

namespace weft::sharding {

/// Loops ask for memory so many turns ahead where what they go through is ordered by rank and what
/// they touch by slot, or the other way round: no cache has it, and no processor guesses it.
inline constexpr std::int64_t kTurnsAhead = 8;

}  // namespace weft::sharding
