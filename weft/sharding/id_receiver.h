/// Private to sharding/: the serving side of the exchange of ids. What other ranks have packed is
/// checked, widened and put behind each other; how a block is unpacked is its path's
/// (paths/slot_path.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/thread_pool.h"
#include "weft/comm/collective.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/paths/paths.h"
#include "weft/sharding/served_ids.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

class IdReceiver {
 public:
  /// `lent`: unpack() is given the senders' memory, so that nothing need be received.
  /// `world_ranks`: the world's number of each rank, for messages. `paths` outlives it.
  IdReceiver(const Paths& paths, bool lent, std::vector<int> world_ranks);

  /// Of direct lanes: takes what the samples of `source` ask, in `counts` [own slots]. Sources come
  /// one after the other, this rank's too, of which nothing is taken. Throws Error(kComm) naming
  /// the rank and the slot for counts that they cannot have.
  void take_counts(std::int64_t global_size,
                   std::int64_t source,
                   std::span<const SlotCounts> counts,
                   ServedIds& served) const;

  /// Of packed lanes (id_lanes.h): describes those of `lane_bytes` [W] bytes that are about to
  /// come.
  void expect_lanes(std::span<const std::int64_t> lane_bytes, ServedIds& served) const;

  /// Of packed lanes that have come: takes what they ask. Throws Error(kComm) naming the rank, and
  /// the slot where one is known, for a lane that is damaged or counts that take_counts() refuses.
  void read_lanes(ThreadPool& pool,
                  std::int64_t global_size,
                  std::span<const comm::Lane> arrived,
                  ServedIds& served) const;

  /// Places the blocks of other ranks, and makes room for those of this one.
  void lay_out(std::int64_t global_size, ServedIds& served, IncomingBlocks& blocks) const;

  /// Throws Error(kComm) naming the sender and the slot where bags or rows are not what was
  /// announced.
  void unpack(ThreadPool& pool,
              std::span<const comm::Lane> arrived,
              ServedIds& served,
              IncomingBlocks& blocks) const;

 private:
  void check(std::int64_t batch,
             std::int64_t source,
             std::int64_t slot,
             const SlotCounts& counts) const;
  void find_parts(std::int64_t global_size, ServedIds& served) const;
  void read_lane(std::int64_t global_size,
                 std::int64_t source,
                 std::span<const std::byte> lane,
                 std::span<ArrivedSlot> arrived) const;
  void expect_blocks(ServedIds& served, IncomingBlocks& blocks) const;
  void receive_pieces(ServedIds& served) const;
  void describe_lanes(ServedIds& served) const;

  [[nodiscard]] ArrivedBlock block_from(const ArrivedSlot& arrived) const {
    return {.slot = &slots_[at(arrived.slot)],
            .source = arrived.source,
            .world_rank = world_ranks_[at(arrived.source)],
            .counts = arrived.counts,
            .pieces = {}};
  }

  [[nodiscard]] const SlotPath& path_of(const ArrivedSlot& arrived) const {
    return paths_.between_ranks(slots_[at(arrived.slot)]);
  }

  /// The pieces of a slot among those of a direct lane.
  [[nodiscard]] std::span<const comm::Piece> pieces_of(std::span<const comm::Piece> lane,
                                                       std::size_t slot) const {
    return lane.subspan(slot_piece_[slot], slot_piece_[slot + 1] - slot_piece_[slot]);
  }

  const Paths& paths_;
  const Routing& routing_;
  std::vector<Slot> slots_;  // own
  bool lent_;
  bool packed_;                          // lanes are
  std::vector<int> world_ranks_;         // [W]
  std::vector<std::size_t> slot_piece_;  // [own slots + 1] its first piece in a lane
};

}  // namespace weft::sharding
