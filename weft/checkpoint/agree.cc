#include "weft/checkpoint/agree.h"

#include <algorithm>
#include <array>
#include <new>
#include <numeric>
#include <optional>
#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/comm/work_watch.h"

namespace weft::checkpoint {
namespace {

constexpr std::int64_t kNone = -1;

/// How the work of some ranks has ended, as it travels: the error of the lowest rank that has one.
struct Outcome {
  std::int64_t rank = kNone;  ///< of the communicator; kNone = no error
  std::int64_t code = 0;
  std::int64_t origin = 0;
  std::int64_t message_bytes = 0;
};

std::optional<Error> attempt(const Work& work, WorkProgress& progress) {
  try {
    work(progress);
    return std::nullopt;
  } catch (const Error& error) {
    return error;
  } catch (const std::bad_alloc&) {
    return Error(
        ErrorCode::kResource,
        "out of memory; a checkpoint needs 48 MiB per rank, and one that is written beside "
        "steps also room for its copies");
  } catch (const std::exception& error) {
    return Error(ErrorCode::kInternal, error.what());
  }
}

Outcome outcome_of(const comm::Communicator& comm, const std::optional<Error>& error) {
  if (!error) {
    return {};
  }
  const int origin = error->origin_rank();
  return {.rank = comm.rank(),
          .code = static_cast<std::int64_t>(error->code()),
          .origin = origin >= 0 ? origin : comm.world_rank(comm.rank()),
          .message_bytes = static_cast<std::int64_t>(std::string_view(error->what()).size())};
}

/// An exchange in which this rank sends bytes to one rank or none (-1), and receives from one or
/// none. Collective.
class OneToOne {
 public:
  OneToOne(comm::Communicator& comm, Context& ctx)
      : comm_(comm),
        ctx_(ctx),
        send_(static_cast<std::size_t>(comm.size())),
        recv_(static_cast<std::size_t>(comm.size())) {}

  void send(int to, const void* data, std::int64_t bytes) {
    pieces_[0] = {const_cast<void*>(data), bytes};
    run(to, -1);
  }

  void receive(int from, void* data, std::int64_t bytes) {
    pieces_[1] = {data, bytes};
    run(-1, from);
  }

  void rest() { run(-1, -1); }

 private:
  void run(int to, int from) {
    std::fill(send_.begin(), send_.end(), comm::Lane{.pieces = {}, .silent = true});
    std::fill(recv_.begin(), recv_.end(), comm::Lane{.pieces = {}, .silent = true});
    if (to >= 0) {
      send_[static_cast<std::size_t>(to)] = {.pieces = {&pieces_[0], 1}, .silent = false};
    }
    if (from >= 0) {
      recv_[static_cast<std::size_t>(from)] = {.pieces = {&pieces_[1], 1}, .silent = false};
    }
    comm_.exchange_directly(ctx_, send_, recv_);
  }

  comm::Communicator& comm_;
  Context& ctx_;
  std::vector<comm::Lane> send_;
  std::vector<comm::Lane> recv_;
  std::array<comm::Piece, 2> pieces_;
};

/// Up a binary tree to rank 0, and down again: 2 (W - 1) messages of all ranks together, and of
/// each at most 2 log2 W.
Outcome outcome_of_all(comm::Communicator& comm, Context& ctx, Outcome own) {
  OneToOne exchange(comm, ctx);
  const int rank = comm.rank();
  int span = 1;
  for (; span < comm.size(); span *= 2) {
    if (rank % (2 * span) == span) {
      exchange.send(rank - span, &own, sizeof own);
    } else if (rank % (2 * span) == 0 && rank + span < comm.size()) {
      Outcome other;
      exchange.receive(rank + span, &other, sizeof other);
      own = own.rank == kNone ? other : own;
    } else {
      exchange.rest();
    }
  }
  for (span /= 2; span > 0; span /= 2) {
    if (rank % (2 * span) == span) {
      exchange.receive(rank - span, &own, sizeof own);
    } else if (rank % (2 * span) == 0 && rank + span < comm.size()) {
      exchange.send(rank + span, &own, sizeof own);
    } else {
      exchange.rest();
    }
  }
  return own;
}

}  // namespace

void agree(comm::Communicator& comm, Context& ctx, const Work& work) {
  std::optional<Error> error;
  comm::run_watched(comm, [&](WorkProgress& progress) { error = attempt(work, progress); });
  const Outcome outcome = outcome_of_all(comm, ctx, outcome_of(comm, error));
  if (outcome.rank == kNone) {
    return;
  }
  std::string message = error ? error->what() : "";
  message.resize(static_cast<std::size_t>(outcome.message_bytes));
  comm.broadcast(ctx, message.data(), outcome.message_bytes, static_cast<int>(outcome.rank));
  throw Error(static_cast<ErrorCode>(outcome.code), message, static_cast<int>(outcome.origin));
}

Gathered gather_to_first(comm::Communicator& comm, Context& ctx, std::span<const std::byte> own) {
  const auto ranks = static_cast<std::size_t>(comm.size());
  const bool is_first = comm.rank() == 0;
  Gathered out;
  out.counts.resize(is_first ? ranks : 0);
  const std::vector<comm::Lane> silent(ranks, {.pieces = {}, .silent = true});
  const auto gather = [&](const comm::Piece& sent, const std::vector<comm::Piece>& received) {
    std::vector<comm::Lane> send = silent;
    std::vector<comm::Lane> recv = silent;
    send[0] = {.pieces = {&sent, 1}, .silent = false};
    for (std::size_t r = 0; r < received.size(); ++r) {
      recv[r] = {.pieces = {&received[r], 1}, .silent = false};
    }
    comm.exchange_directly(ctx, send, recv);
  };
  auto own_bytes = static_cast<std::int64_t>(own.size());
  std::vector<comm::Piece> pieces;
  for (std::int64_t& count : out.counts) {
    pieces.push_back({&count, sizeof count});
  }
  gather({&own_bytes, sizeof own_bytes}, pieces);
  const std::int64_t total = std::accumulate(out.counts.begin(), out.counts.end(), std::int64_t{0});
  out.bytes.resize(static_cast<std::size_t>(total));
  std::byte* next = out.bytes.data();
  for (std::size_t r = 0; r < pieces.size(); ++r) {
    pieces[r] = {next, out.counts[r]};
    next += out.counts[r];
  }
  gather({const_cast<std::byte*>(own.data()), own_bytes}, pieces);
  return out;
}

void share_text(comm::Communicator& comm, Context& ctx, std::string& text) {
  auto bytes = static_cast<std::int64_t>(text.size());
  comm.broadcast(ctx, &bytes, sizeof bytes, 0);
  text.resize(static_cast<std::size_t>(bytes));
  comm.broadcast(ctx, text.data(), bytes, 0);
}

Gathered gather_bytes(comm::Communicator& comm, Context& ctx, std::span<const std::byte> own) {
  Gathered out;
  out.counts.resize(static_cast<std::size_t>(comm.size()));
  const auto own_bytes = static_cast<std::int64_t>(own.size());
  comm.all_gather(ctx, &own_bytes, out.counts.data(), sizeof(own_bytes));
  const std::int64_t total = std::accumulate(out.counts.begin(), out.counts.end(), std::int64_t{0});
  out.bytes.resize(static_cast<std::size_t>(total));
  comm.all_gather_v(ctx, {own.data(), own_bytes, out.bytes.data(), out.counts});
  return out;
}

}  // namespace weft::checkpoint
