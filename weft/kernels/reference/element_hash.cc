#include "weft/kernels/element_hash.h"

#include <cstring>

#include "weft/base/error.h"
#include "weft/base/hash.h"

namespace weft::kernels::reference {
namespace {

constexpr std::uint64_t kColumnStep = 0x9e3779b97f4a7c15ULL;

template <typename Bits>
std::uint64_t sum_of(const ElementBlock& block) {
  const auto* values = static_cast<const char*>(block.values);
  const auto* initial = static_cast<const char*>(block.initial);
  std::uint64_t sum = 0;
  for (std::int64_t r = 0; r < block.rows; ++r) {
    for (std::int64_t c = 0; c < block.cols; ++c) {
      const std::int64_t at = c * static_cast<std::int64_t>(sizeof(Bits));
      Bits bits;
      std::memcpy(&bits, values + r * block.values_stride + at, sizeof(Bits));
      if (initial != nullptr &&
          std::memcmp(&bits, initial + r * block.initial_stride + at, sizeof(Bits)) == 0) {
        continue;
      }
      const auto column = static_cast<std::uint64_t>(block.first_col + c) + 1;
      sum += mix64(mix64(block.row_keys[r] + column * kColumnStep) ^ bits);
    }
  }
  return sum;
}

}  // namespace

std::uint64_t element_hash(const ElementBlock& block) {
  switch (block.element_bytes) {
    case 1:
      return sum_of<std::uint8_t>(block);
    case 2:
      return sum_of<std::uint16_t>(block);
    case 4:
      return sum_of<std::uint32_t>(block);
    case 8:
      return sum_of<std::uint64_t>(block);
    default:
      fail(ErrorCode::kInternal, "elements of {} bytes", block.element_bytes);
  }
}

}  // namespace weft::kernels::reference
