/// Private to comm/: what both backends look at in lanes, and the errors that they give, in the
/// same words.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <span>
#include <string>
#include <string_view>

#include "weft/base/error.h"
#include "weft/comm/collective.h"

namespace weft::comm {

/// A group as messages name it.
struct GroupNames {
  std::string_view name;
  std::span<const int> world_ranks;  ///< of the group's ranks

  /// "rank 1", and "(world rank 3)" where that differs.
  [[nodiscard]] std::string rank(int rank) const;

  [[nodiscard]] int world(int rank) const { return world_ranks[static_cast<std::size_t>(rank)]; }
};

/// What a lane promises: for comparing both ends.
struct LaneSize {
  std::int64_t bytes = 0;
  std::int64_t pieces = 0;
  bool silent = false;

  friend bool operator==(const LaneSize&, const LaneSize&) = default;
};

LaneSize size_of(const Lane& lane);

/// Rank `self` finds that `peer` makes another call.
Error out_of_step(
    const GroupNames& group, int self, const Stamp& mine, int peer, const Stamp& theirs);

/// Rank `self` finds that what `peer` sends is not what it expects.
Error wrong_size(const GroupNames& group,
                 const Stamp& stamp,
                 int peer,
                 const LaneSize& sent,
                 int self,
                 const LaneSize& expected);

/// Rank `peer` has ended while `self` waits for it.
Error peer_ended(const GroupNames& group, const Stamp& stamp, int self, int peer);

/// What an exception of rank `rank` is to the others.
Error as_error(const std::exception_ptr& exception, int rank);

/// Throws Error(kUsage) when what a rank sends to itself is not what it expects.
void check_own_lane(std::string_view group, const Stamp& stamp, const Lane& send, const Lane& recv);

/// Returns where pieces begin that lie one behind the other, each one run; null where they do not,
/// or have no byte.
std::byte* run_of_many(std::span<const Piece> pieces);

inline std::byte* run_of(std::span<const Piece> pieces) {
  if (pieces.size() != 1) {
    return run_of_many(pieces);
  }
  const Piece& only = pieces.front();
  return only.row_bytes == 0 && only.bytes > 0 ? static_cast<std::byte*>(only.data) : nullptr;
}

/// Returns whether both lanes have as many pieces, each of the same bytes; so they agree in size.
bool same_pieces(const Lane& send, const Lane& recv);

}  // namespace weft::comm
