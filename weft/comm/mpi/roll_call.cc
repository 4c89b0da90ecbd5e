#include "weft/comm/mpi/roll_call.h"

namespace weft::comm {
namespace {

constexpr std::size_t kOfAByte = 4;  // states, of two bits

}  // namespace

RollCall::RollCall(int rank, int size)
    : rank_(static_cast<std::size_t>(rank)),
      states_(static_cast<std::size_t>(size), RollState::kUnheard) {
}

void RollCall::learn(std::size_t rank, RollState state) {
  if (state > states_[rank]) {
    states_[rank] = state;
    has_news_ = true;
  }
}

void RollCall::answer(RollState own) {
  begun_ = answered_ = true;
  learn(rank_, own);
}

void RollCall::take(std::span<const std::byte> states) {
  begun_ = true;
  for (std::size_t rank = 0; rank < states_.size() && rank / kOfAByte < states.size(); ++rank) {
    const auto byte = std::to_integer<unsigned>(states[rank / kOfAByte]);
    learn(rank, static_cast<RollState>(byte >> (2 * (rank % kOfAByte)) & 3U));
  }
}

std::vector<std::byte> RollCall::tell(Clock::time_point now) {
  has_news_ = false;
  next_ = now + kPause;
  std::vector<std::byte> bytes((states_.size() + kOfAByte - 1) / kOfAByte);
  for (std::size_t rank = 0; rank < states_.size(); ++rank) {
    bytes[rank / kOfAByte] |=
        static_cast<std::byte>(static_cast<unsigned>(states_[rank]) << (2 * (rank % kOfAByte)));
  }
  return bytes;
}

std::vector<int> RollCall::lost() const {
  for (const RollState least : {RollState::kWaits, RollState::kEnded}) {
    std::vector<int> ranks;
    for (std::size_t rank = 0; rank < states_.size(); ++rank) {
      if (states_[rank] < least) {
        ranks.push_back(static_cast<int>(rank));
      }
    }
    if (!ranks.empty()) {
      return ranks;
    }
  }
  return {};
}

int RollCall::turn() const {
  const auto waits = [&](std::size_t rank) { return states_[rank] >= RollState::kWaits; };
  int before = 0;
  for (std::size_t rank = 0; rank < states_.size(); ++rank) {
    const bool earlier = waits(rank) == waits(rank_) ? rank < rank_ : waits(rank);
    before += states_[rank] != RollState::kUnheard && earlier ? 1 : 0;
  }
  return before;
}

}  // namespace weft::comm
