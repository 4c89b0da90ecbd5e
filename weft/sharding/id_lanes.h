/// Private to sharding/: the lanes of ids between many ranks, each one run of bytes
/// (weft/layout/id_lanes.h says among how many ranks, and why).
///
/// Lane     of K slots that the receiver serves, in their order:
///            marks      which slots have ids. Of more than 128 slots first how many, a number of 1
///                       to 5 bytes; then, where that is shorter, the numbers of these, ascending,
///                       of 1, 2 or 4 bytes each. Else bit j % 8 of byte j / 8 is that of slot j,
///                       and the last byte's other bits are 0
///            counts     of each slot that has: its ids, a number of 1 to 5 bytes; the bytes of a
///                       bag's length, 0, 1, 2 or 4, where its bags are not listed, which the
///                       number of ids tells (weft/layout/listed_bags.h); the bytes of packed rows,
///                       a number likewise, where its rows travel packed
///            sections   of each slot that has: what its path sends, without a gap
///          A lane without ids has no byte. The samples of a rank are known by rule.
/// Aligned  is nothing: what is read of a lane is read as bytes (wire_ids.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "weft/base/thread_pool.h"
#include "weft/sharding/asked_ids.h"
#include "weft/sharding/paths/paths.h"
#include "weft/sharding/served_ids.h"
#include "weft/sharding/wire_ids.h"

namespace weft::sharding {

/// Writes the lanes to all other ranks from what the paths have packed, and points `asked.lanes` at
/// them: one piece each, none where there is no id. Tasks of the pool, one per lane; O(slots) and
/// a copy of what is sent. Nothing is allocated once the longest batch has been seen.
void pack_id_lanes(ThreadPool& pool, const Paths& paths, AskedIds& asked);

/// How many of so many slots have ids in a lane from `sender`, a rank of the world. Throws
/// Error(kComm) that names it where the marks do not end in the lane, mark no slot, or are damaged
/// bits.
std::int64_t marked_slots(std::span<const std::byte> lane, std::int64_t slots, int sender);

/// Reads the counts of these slots from `lane` into `arrived` [marked_slots()], but for the source;
/// the samples of `sender`, a rank of the world, are `batch`. Returns the bytes that marks and
/// counts take. Throws Error(kComm) that names it where they are damaged; what is in the counts is
/// left to IdReceiver.
std::int64_t read_slot_counts(std::span<const std::byte> lane,
                              std::span<const Slot> slots,
                              std::int64_t batch,
                              int sender,
                              std::span<ArrivedSlot> arrived);

}  // namespace weft::sharding
