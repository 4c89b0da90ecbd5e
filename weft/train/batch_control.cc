#include "weft/train/batch_control.h"

#include <cstring>

#include "weft/base/error.h"

namespace weft::train {
namespace {

constexpr std::int64_t kStop = 1;
constexpr std::int64_t kRefused = 2;
constexpr std::int64_t kStopBytes = 8;

}  // namespace

std::int64_t BatchControl::bytes(std::int64_t ranks) const {
  return kStopBytes +
         decltype(weights)::encoded_bytes(most_subtrees_of_ranks(parts_, ranks), tasks_);
}

void BatchControl::append(const BatchControl& right) {
  stop |= right.stop;
  refused |= right.refused;
  if (!refused) {
    weights.append(right.weights);
  }
}

void BatchControl::encode(std::span<std::byte> out) const {
  WEFT_CHECK(std::ssize(out) >= kStopBytes);
  const std::int64_t word = (stop ? kStop : 0) | (refused ? kRefused : 0);
  std::memcpy(out.data(), &word, sizeof(word));
  weights.encode(out.subspan(sizeof(word)));
}

void BatchControl::decode(std::span<const std::byte> in) {
  WEFT_CHECK(std::ssize(in) >= kStopBytes);
  std::int64_t word = 0;
  std::memcpy(&word, in.data(), sizeof(word));
  stop = (word & kStop) != 0;
  refused = (word & kRefused) != 0;
  weights.decode(in.subspan(sizeof(word)));
}

}  // namespace weft::train
