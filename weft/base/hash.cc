#include "weft/base/hash.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace weft {

std::uint64_t hash_bytes(std::span<const std::byte> bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t hash_string(std::string_view text) {
  return XXH3_64bits(text.data(), text.size());
}

}  // namespace weft
