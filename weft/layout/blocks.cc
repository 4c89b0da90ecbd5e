#include "weft/layout/blocks.h"

namespace weft::layout {

std::int64_t mapped_bytes(std::int64_t bytes) {
  constexpr std::int64_t kMapUnit = std::int64_t{64} << 10;  // a multiple of every page size in use
  constexpr std::int64_t kLarge = 8 * kHugePage;             // an eighth more memory at most
  return round_up(bytes, bytes >= kLarge ? kHugePage : kMapUnit);
}

std::int64_t block_bytes(std::int64_t bytes) {
  return is_mapped(bytes) ? mapped_bytes(bytes) : bytes;
}

}  // namespace weft::layout
