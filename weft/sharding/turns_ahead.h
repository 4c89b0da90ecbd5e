/// Private to sharding/: how loops ask for memory ahead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::sharding {

/// Loops ask for memory so many turns ahead where what they go through is ordered by rank and what
/// they touch by slot, or the other way round: no cache has it, and no processor guesses it.
inline constexpr std::int64_t kTurnsAhead = 8;

/// Asks for `count` objects, at most a cache line together, which may lie across two lines.
template <typename T>
void prefetch(const T* objects, std::int64_t count = 1) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(objects);
  __builtin_prefetch(bytes);
  __builtin_prefetch(bytes + static_cast<std::int64_t>(sizeof(T)) * count - 1);
}

}  // namespace weft::sharding
