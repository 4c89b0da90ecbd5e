#include "weft/comm/clock.h"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <vector>

#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

/// One message from rank `from` to rank `to`; the others only take part.
class Courier {
 public:
  Courier(Communicator& comm, Context& ctx)
      : comm_(comm),
        ctx_(ctx),
        send_(static_cast<std::size_t>(comm.size())),
        recv_(static_cast<std::size_t>(comm.size())) {}

  void carry(int from, int to, std::span<std::int64_t> values) {
    std::fill(send_.begin(), send_.end(), Lane{.pieces = {}, .silent = true});
    std::fill(recv_.begin(), recv_.end(), Lane{.pieces = {}, .silent = true});
    piece_ = {.data = values.data(), .bytes = static_cast<std::int64_t>(values.size_bytes())};
    const Lane lane{.pieces = {&piece_, 1}, .silent = false};
    if (comm_.rank() == from) {
      send_[static_cast<std::size_t>(to)] = lane;
    } else if (comm_.rank() == to) {
      recv_[static_cast<std::size_t>(from)] = lane;
    }
    comm_.exchange(ctx_, send_, recv_);
  }

 private:
  Communicator& comm_;
  Context& ctx_;
  std::vector<Lane> send_, recv_;
  Piece piece_;
};

}  // namespace

ClockOffset clock_offset(Communicator& comm, Context& ctx, int rounds) {
  ClockOffset own;
  Courier courier(comm, ctx);
  for (int rank = 1; rank < comm.size(); ++rank) {
    if (comm.host(rank) == comm.host(0)) {
      continue;
    }
    std::int64_t fastest = std::numeric_limits<std::int64_t>::max();
    for (int round = 0; round < rounds; ++round) {
      const std::int64_t sent = trace::now_ns();
      std::array<std::int64_t, 1> ping = {round};
      courier.carry(rank, 0, ping);
      std::array<std::int64_t, 2> pong = {trace::now_ns(), 0};
      pong[1] = trace::now_ns();
      courier.carry(0, rank, pong);
      const std::int64_t received = trace::now_ns();
      const std::int64_t trip = (received - sent) - (pong[1] - pong[0]);
      if (comm.rank() == rank && trip < fastest) {
        fastest = trip;
        own = {.offset_ns = ((sent - pong[0]) + (received - pong[1])) / 2, .error_ns = trip / 2};
      }
    }
  }
  return own;
}

}  // namespace weft::comm
