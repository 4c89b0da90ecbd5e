#include "weft/comm/clock.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <limits>

#include "weft/comm/peer_lanes.h"
#include "weft/comm/rank_tree.h"
#include "weft/trace/recorder.h"

namespace weft::comm {
namespace {

/// Messages of three numbers, from each rank to one at most and from one at most.
class Courier {
 public:
  using Letter = std::array<std::int64_t, 3>;

  Courier(Communicator& comm, Context& ctx)
      : comm_(comm), ctx_(ctx), lanes_(static_cast<std::size_t>(comm.size())) {}

  void send(int to, Letter letter) { run(to, -1, letter); }

  Letter receive(int from) {
    Letter letter{};
    run(-1, from, letter);
    return letter;
  }

  void rest() {
    Letter none{};
    run(-1, -1, none);
  }

 private:
  void run(int to, int from, Letter& letter) {
    lanes_.clear();
    piece_ = {.data = letter.data(), .bytes = sizeof letter};
    const Lane lane{.pieces = {&piece_, 1}, .silent = false};
    if (to >= 0) {
      lanes_.send_to(to, lane);
    }
    if (from >= 0) {
      lanes_.receive_from(from, lane);
    }
    comm_.exchange_directly(ctx_, lanes_);
  }

  Communicator& comm_;
  Context& ctx_;
  PeerLanes lanes_;
  Piece piece_;
};

/// What a rank asks its leader in one level of the tree, by round trips one after the other.
class Asking {
 public:
  Asking(Communicator& comm, Courier& courier, int rounds)
      : comm_(comm), courier_(courier), rounds_(rounds) {}

  /// Leads: answers `child` with the own clock and how far it is from rank 0's.
  void answer(int child, const ClockOffset& own) {
    for (int round = 0; round < rounds_; ++round) {
      courier_.receive(child);
      courier_.send(child, {trace::now_ns(), own.offset_ns, own.error_ns});
    }
  }

  /// The own distance from rank 0's clock: that from the leader's and the leader's from there.
  ClockOffset ask(int leader) {
    ClockOffset best{.offset_ns = 0, .error_ns = std::numeric_limits<std::int64_t>::max()};
    ClockOffset of_leader;
    for (int round = 0; round < rounds_; ++round) {
      const std::int64_t sent = trace::now_ns();
      courier_.send(leader, {});
      const Courier::Letter pong = courier_.receive(leader);
      const std::int64_t received = trace::now_ns();
      const std::int64_t half = (received - sent) / 2;
      of_leader = {.offset_ns = pong[1], .error_ns = pong[2]};
      if (half < best.error_ns) {
        best = {.offset_ns = ((sent - pong[0]) + (received - pong[0])) / 2, .error_ns = half};
      }
    }
    if (comm_.host(leader) == comm_.host(comm_.rank())) {
      return of_leader;
    }
    return {.offset_ns = of_leader.offset_ns + best.offset_ns,
            .error_ns = of_leader.error_ns + best.error_ns};
  }

  void rest() {
    for (int round = 0; round < 2 * rounds_; ++round) {
      courier_.rest();
    }
  }

 private:
  Communicator& comm_;
  Courier& courier_;
  int rounds_;
};

}  // namespace

ClockOffset clock_offset(Communicator& comm, Context& ctx, int rounds) {
  ClockOffset own;
  Courier courier(comm, ctx);
  const int rank = comm.rank();
  const int size = comm.size();
  int span = 1;
  while (span * kTreeFan < size) {
    span *= kTreeFan;
  }
  // From the top down, so that a leader knows its own before it answers. All of a level ask at
  // once, and the ranks of one leader by turns.
  for (; span > 0; span /= kTreeFan) {
    const int within = rank % (span * kTreeFan);
    const int turns = std::min(kTreeFan, (size + span - 1) / span);
    // Ranks of one host have one clock: one round trip tells what it is.
    bool apart = false;
    for (int child = span; child < size; child += span) {
      const int place = child % (span * kTreeFan);
      apart |= place != 0 && comm.host(child) != comm.host(child - place);
    }
    Asking asking(comm, courier, apart ? rounds : 1);
    for (int turn = 1; turn < turns; ++turn) {
      if (within == 0 && rank + turn * span < size) {
        asking.answer(rank + turn * span, own);
      } else if (within == turn * span) {
        own = asking.ask(rank - within);
      } else {
        asking.rest();
      }
    }
  }
  return own;
}

}  // namespace weft::comm
