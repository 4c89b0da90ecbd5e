#include "weft/cost/memory.h"

#include <algorithm>
#include <cmath>

namespace weft::cost {

void ArenaMemory::need(std::size_t number, double bytes) {
  blocks_.resize(std::max(blocks_.size(), number + 1));
  const auto whole = static_cast<std::int64_t>(std::ceil(bytes));
  if (whole > blocks_[number]) {
    blocks_[number] = layout::grown_block(whole, blocks_[number]);
    chunks_.take(blocks_[number]);
  }
}

double ArenaMemory::counted_bytes() const {
  return static_cast<double>(chunks_.counted_bytes());
}

}  // namespace weft::cost
