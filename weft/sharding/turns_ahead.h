/// Private to sharding/: how loops ask for memory ahead.
#pragma once

#include <cstddef>
#include <cstdint>

namespace weft::sharding {

/// Loops ask for memory so many turns ahead where what they go through is ordered by rank and what
/// they touch by slot, or the other way round: no cache has it, and no processor guesses it.
inline constexpr std::int64_t kTurnsAhead = 8;

/// Asks for the first and the last byte of an object, which may lie across two cache lines.
template <typename T>
void prefetch(const T* object) {
  const auto* const bytes = reinterpret_cast<const std::byte*>(object);
  __builtin_prefetch(bytes);
  __builtin_prefetch(bytes + sizeof(T) - 1);
}

}  // namespace weft::sharding
