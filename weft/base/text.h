/// Small text helpers for messages.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace weft {

/// The candidate with the smallest edit distance to `word`, empty when none is near enough
/// (distance at most a third of the longer word, at least 1).
std::string nearest(std::string_view word, std::span<const std::string> candidates);

/// "did you mean 'x'?" or, where nothing is near, "known: a, b, c".
std::string suggestion(std::string_view word, std::span<const std::string> candidates);

/// 1536 -> "1.5 KiB".
std::string format_bytes(std::uint64_t bytes);

/// format_bytes() of an estimate, which is rounded; a negative one counts as 0.
std::string format_estimated_bytes(double bytes);

/// For tables of times.
constexpr double to_ms(double seconds) {
  return seconds * 1e3;
}

/// 1234567 -> "1,234,567".
std::string format_count(std::int64_t count);

/// 1, "rank" -> "1 rank"; 4096, "rank" -> "4096 ranks". `many` where it is not `one` and an s.
std::string counted(std::int64_t count, std::string_view one, std::string_view many = {});

}  // namespace weft
