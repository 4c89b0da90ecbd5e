#include "weft/comm/messages.h"

#include <cstddef>
#include <exception>
#include <new>

#include <fmt/format.h>

namespace weft::comm {
namespace {

std::string describe_call(const Stamp& stamp) {
  return stamp.size < 0 ? fmt::format("{} #{}", to_string(stamp.collective), stamp.sequence)
                        : fmt::format("{} #{} of {} bytes", to_string(stamp.collective),
                                      stamp.sequence, stamp.size);
}

std::string describe_size(const LaneSize& size) {
  if (size.silent) {
    return "nothing";
  }
  return size.pieces <= 1 ? fmt::format("{} bytes", size.bytes)
                          : fmt::format("{} bytes in {} pieces", size.bytes, size.pieces);
}

}  // namespace

std::string GroupNames::rank(int rank) const {
  return world(rank) == rank ? fmt::format("rank {}", rank)
                             : fmt::format("rank {} (world rank {})", rank, world(rank));
}

LaneSize size_of(const Lane& lane) {
  if (lane.silent) {
    return {.bytes = 0, .pieces = 0, .silent = true};
  }
  return {lane.bytes(), static_cast<std::int64_t>(lane.pieces.size()), false};
}

Error out_of_step(
    const GroupNames& group, int self, const Stamp& mine, int peer, const Stamp& theirs) {
  const bool only_arguments = mine.sequence == theirs.sequence &&
                              mine.collective == theirs.collective && mine.size == theirs.size;
  return {ErrorCode::kComm,
          fmt::format("ranks of group '{}' are out of step: {} calls {} while {} calls {}{}; all "
                      "ranks must make the same collective calls in the same order",
                      group.name, group.rank(self), describe_call(mine), group.rank(peer),
                      describe_call(theirs),
                      only_arguments ? " with another type, operation, root or name" : ""),
          group.world(self)};
}

Error wrong_size(const GroupNames& group,
                 const Stamp& stamp,
                 int peer,
                 const LaneSize& sent,
                 int self,
                 const LaneSize& expected) {
  const bool same = sent == expected;
  return {ErrorCode::kComm,
          fmt::format("{}: {} sends {} to {}, which expects {}{}; both ends must give the same "
                      "sizes",
                      describe(stamp, group.name), group.rank(peer), describe_size(sent),
                      group.rank(self), describe_size(expected), same ? " cut otherwise" : ""),
          group.world(self)};
}

Error peer_ended(const GroupNames& group, const Stamp& stamp, int self, int peer) {
  return {ErrorCode::kComm,
          fmt::format("{}: {} waits for {}, which has ended; all ranks must make the same "
                      "collective calls",
                      describe(stamp, group.name), group.rank(self), group.rank(peer)),
          group.world(self)};
}

Error as_error(const std::exception_ptr& exception, int rank) {
  try {
    std::rethrow_exception(exception);
  } catch (const Error& error) {
    return error.origin_rank() >= 0 ? error : Error(error.code(), error.what(), rank);
  } catch (const std::bad_alloc&) {
    return {ErrorCode::kResource, fmt::format("rank {} is out of memory", rank), rank};
  } catch (const std::exception& error) {
    return {ErrorCode::kInternal, error.what(), rank};
  } catch (...) {
    return {ErrorCode::kInternal, fmt::format("rank {} threw something unknown", rank), rank};
  }
}

std::byte* run_of_many(std::span<const Piece> pieces) {
  std::byte* begin = nullptr;
  std::byte* end = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.bytes == 0) {
      continue;
    }
    auto* const data = static_cast<std::byte*>(piece.data);
    if (piece.row_bytes != 0 || (end != nullptr && data != end)) {
      return nullptr;
    }
    begin = begin == nullptr ? data : begin;
    end = data + piece.bytes;
  }
  return begin;
}

bool same_pieces(const Lane& send, const Lane& recv) {
  if (send.pieces.size() != recv.pieces.size()) {
    return false;
  }
  for (std::size_t i = 0; i < send.pieces.size(); ++i) {
    if (send.pieces[i].bytes != recv.pieces[i].bytes) {
      return false;
    }
  }
  return true;
}

void check_own_lane(std::string_view group,
                    const Stamp& stamp,
                    const Lane& send,
                    const Lane& recv) {
  if (send.silent && recv.silent) {
    return;
  }
  if (send.silent != recv.silent || !same_pieces(send, recv)) {
    fail(ErrorCode::kUsage, "{}: a rank sends {} to itself but expects {}", describe(stamp, group),
         describe_size(size_of(send)), describe_size(size_of(recv)));
  }
}

}  // namespace weft::comm
