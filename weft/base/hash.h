/// Hashes with a stated definition: they are part of the file format and of results.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace weft {

/// Bijective mixing of 64 bits (the finaliser of MurmurHash3, as used by splitmix64).
inline std::uint64_t mix64(std::uint64_t x) {
  x ^= x >> 30;
  x *= 0xbf58476d1ce4e5b9ULL;
  x ^= x >> 27;
  x *= 0x94d049bb133111ebULL;
  x ^= x >> 31;
  return x;
}

/// XXH3 64-bit of bytes, seed 0.
std::uint64_t hash_bytes(std::span<const std::byte> bytes);
std::uint64_t hash_string(std::string_view text);

/// Order-dependent combination.
inline std::uint64_t hash_combine(std::uint64_t a, std::uint64_t b) {
  return mix64(a ^ (b + 0x9e3779b97f4a7c15ULL + (a << 6) + (a >> 2)));
}

}  // namespace weft
