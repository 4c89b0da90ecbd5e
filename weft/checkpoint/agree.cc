#include "weft/checkpoint/agree.h"

#include <algorithm>
#include <cstring>
#include <new>
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

Outcome outcome_of_all(comm::Communicator& comm, Context& ctx, Outcome own) {
  comm.merge(ctx, std::as_writable_bytes(std::span(&own, 1)),
             [](std::span<std::byte> block, std::span<const std::byte> later) {
               Outcome first;
               std::memcpy(&first, block.data(), sizeof first);
               if (first.rank == kNone) {
                 std::memcpy(block.data(), later.data(), later.size());
               }
             });
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

namespace {

/// A rank's bytes behind their number, which then say by themselves where the next rank's begin.
std::vector<std::byte> framed(std::span<const std::byte> own) {
  const auto bytes = static_cast<std::int64_t>(own.size());
  std::vector<std::byte> block(sizeof bytes + own.size());
  std::memcpy(block.data(), &bytes, sizeof bytes);
  std::copy(own.begin(), own.end(), block.begin() + sizeof bytes);
  return block;
}

/// Framed bytes of all ranks; on rank 0.
std::vector<std::byte> framed_to_first(comm::Communicator& comm,
                                       Context& ctx,
                                       std::span<const std::byte> own) {
  return comm.merge_to_first(ctx, framed(own),
                             [](std::vector<std::byte>& block, std::span<const std::byte> later) {
                               block.insert(block.end(), later.begin(), later.end());
                             });
}

Gathered without_frames(std::span<const std::byte> framed, int ranks) {
  Gathered out;
  out.bytes.reserve(framed.size());
  for (int rank = 0; rank < ranks; ++rank) {
    std::int64_t& bytes = out.counts.emplace_back();
    std::memcpy(&bytes, framed.data(), sizeof bytes);
    const auto own = framed.subspan(sizeof bytes, static_cast<std::size_t>(bytes));
    out.bytes.insert(out.bytes.end(), own.begin(), own.end());
    framed = framed.subspan(sizeof bytes + own.size());
  }
  return out;
}

}  // namespace

Gathered gather_to_first(comm::Communicator& comm, Context& ctx, std::span<const std::byte> own) {
  const std::vector<std::byte> all = framed_to_first(comm, ctx, own);
  return comm.rank() == 0 ? without_frames(all, comm.size()) : Gathered{};
}

Gathered gather_bytes(comm::Communicator& comm, Context& ctx, std::span<const std::byte> own) {
  std::vector<std::byte> all = framed_to_first(comm, ctx, own);
  comm.share(ctx, all, 0);
  return without_frames(all, comm.size());
}

}  // namespace weft::checkpoint
