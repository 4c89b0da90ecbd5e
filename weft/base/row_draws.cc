#include "weft/base/row_draws.h"

#include <algorithm>
#include <bit>

namespace weft {

std::array<std::uint32_t, RowDraws::kColumns> RowDraws::bits(std::int64_t row,
                                                             std::uint64_t step,
                                                             std::int64_t first_col) const {
  const auto number = static_cast<std::uint64_t>(row);
  const auto col = static_cast<std::uint64_t>(first_col);
  std::array<std::uint32_t, kColumns> out{};
  if (rule == DrawRule::kWord) {
    for (std::uint64_t half = 0; half < 2; ++half) {
      const auto words = philox(key, number, (step << 20) + col / 4 + half);
      std::copy(words.begin(), words.end(), out.begin() + static_cast<std::ptrdiff_t>(4 * half));
    }
    return out;
  }
  const auto words = philox(key, number, (step << 20) + col / 8, rounds_of(rule));
  for (std::size_t i = 0; i < words.size(); ++i) {
    out[2 * i] = words[i];
    out[2 * i + 1] = std::rotl(words[i], 16);
  }
  return out;
}

}  // namespace weft
