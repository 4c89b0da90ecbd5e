#include "weft/cost/memory.h"

#include <algorithm>
#include <cmath>

namespace weft::cost {
namespace {

constexpr double kLine = 64.0;
constexpr double kMapUnit = 65536.0;
constexpr double kHugePage = 2097152.0;

}  // namespace

double block_bytes(double bytes) {
  const double whole = std::ceil(bytes);
  return whole < kHugePage ? whole
                           : round_up(whole, whole < 8.0 * kHugePage ? kMapUnit : kHugePage);
}

void ArenaMemory::need(std::size_t number, double bytes) {
  blocks_.resize(std::max(blocks_.size(), number + 1));
  double& block = blocks_[number];
  if (bytes <= block) {
    return;
  }
  block = std::max(bytes, std::floor(1.5 * block));
  const double taken = round_up(block, kLine);
  if (chunks_.empty() || chunks_.back().bytes - chunks_.back().used < taken) {
    const double next =
        chunks_.empty() ? kHugePage : std::min(16.0 * kHugePage, 2.0 * chunks_.back().bytes);
    chunks_.push_back({.bytes = round_up(std::max(next, taken), kHugePage)});
  }
  chunks_.back().used += taken;
}

double ArenaMemory::counted_bytes() const {
  double bytes = 0.0;
  for (const Chunk& chunk : chunks_) {
    bytes += round_up(chunk.used, kHugePage);
  }
  return bytes;
}

}  // namespace weft::cost
