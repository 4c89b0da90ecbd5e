/// Which rows lie in which slots of a cache: looking rows up, pinning them, choosing whose slot a
/// row takes. Nothing here reads a row (weft/kernels/row_moves.h moves them).
///
/// Slots   way w of set s is slot s · ways + w; behind the sets lie slots of no set. A row belongs
///         to the set that its number hashes to. A row that lies outside of its set ("displaced")
///         is in a list of that set's, which is looked into where none of its ways has the row.
/// Order   what happens to a row may depend on the rows before it in a job, and on nothing else:
///         neither threads nor the backend decide. Jobs are of different caches.
/// Policy  a slot's stamp is the time of the last batch that has asked for its row. kLru takes the
///         slot with the oldest stamp, kLfu that whose uses, halved at every multiple of
///         `half_life`, are fewest, and of these the oldest; kComing the oldest of those that no
///         batch waits for. Of equal ones the lowest way is taken. A free way goes first.
/// Ownership: all arrays are in memory of the context's device, results on the host. They are there
/// when an operation returns.
/// Cost: on the CPU a row that is found costs a line of its set's rows (four, with 32 ways) and one
/// of marks, asked for ahead.
#pragma once

#include <cstdint>
#include <span>

#include "weft/base/hash.h"
#include "weft/base/parts.h"
#include "weft/tensor/device.h"

namespace weft::kernels {

/// Whose slot is taken where none is free.
enum class CachePolicy : std::uint8_t { kLru, kLfu, kComing };

/// What a slot's row is, besides pinned.
enum class SlotFlag : std::uint8_t {
  kNone = 0,
  kChanged = 1,  ///< the slower memory has another value
  kLoading = 2,  ///< its slot does not have it yet
  kWanted = 4,   ///< a batch has found it, and had no room to pin it
};

/// What is known of a slot.
struct SlotMark {
  std::uint32_t stamp = 0;  ///< time of the batch that has asked for it last
  std::uint16_t uses = 0;   ///< kUseUnit for each batch, halved as time goes by; under kLfu
  std::uint8_t pins = 0;    ///< batches that hold it
  std::uint8_t flags = 0;   ///< SlotFlag

  friend bool operator==(const SlotMark&, const SlotMark&) = default;

  [[nodiscard]] bool has(SlotFlag flag) const {
    return (flags & static_cast<std::uint8_t>(flag)) != 0;
  }

  void set(SlotFlag flag) { flags = static_cast<std::uint8_t>(flags | static_cast<int>(flag)); }

  void clear(SlotFlag flag) { flags = static_cast<std::uint8_t>(flags & ~static_cast<int>(flag)); }
};

/// Uses of one batch: a count that is halved keeps four bits below it.
inline constexpr std::uint16_t kUseUnit = 16;

/// A cache's arrays. A slot without a row has row -1.
struct CacheSlots {
  std::int64_t sets = 0;
  std::int64_t ways = 0;          ///< 8 or 32
  std::int64_t spill = 0;         ///< slots behind the sets
  std::int64_t* rows = nullptr;   ///< [slots] aligned to a cache line
  SlotMark* marks = nullptr;      ///< [slots]
  std::int32_t* heads = nullptr;  ///< [sets] the first displaced row's slot, or -1
  std::int32_t* nexts = nullptr;  ///< [slots] the next one's, or -1

  [[nodiscard]] std::int64_t slots() const { return sets * ways + spill; }

  /// The n-th slot that a row takes whose set is full while others are not: those behind the sets,
  /// then the last ways of all sets, then those before.
  [[nodiscard]] std::int64_t nth_unused(std::int64_t n) const {
    const std::int64_t way = n - spill;
    return way < 0 ? sets * ways + n : way % sets * ways + (ways - 1 - way / sets);
  }

  /// The set of a row.
  [[nodiscard]] std::int64_t set_of(std::int64_t row) const {
    __extension__ using Wide = unsigned __int128;
    const auto hash = static_cast<Wide>(mix64(static_cast<std::uint64_t>(row)));
    return static_cast<std::int64_t>((hash * static_cast<Wide>(sets)) >> 64);
  }
};

/// The time of a batch, and what is done with it.
struct CacheTime {
  CachePolicy policy = CachePolicy::kLru;
  std::uint32_t now = 0;         ///< of the batch: 1, 2, ... in the order of their fetch
  std::uint32_t half_life = 64;  ///< batches; kLfu

  /// What uses that were counted at `stamp` are now.
  [[nodiscard]] std::uint16_t uses(const SlotMark& mark) const {
    const std::uint32_t then = mark.stamp / half_life;
    const std::uint32_t halvings = now / half_life > then ? now / half_life - then : 0;
    return halvings > 15 ? std::uint16_t{0} : static_cast<std::uint16_t>(mark.uses >> halvings);
  }

  /// The batch asks for the slot's row. One that is older than another that has counts as used once
  /// more, and makes it no older.
  void touch(SlotMark& mark) const {
    if (policy == CachePolicy::kLfu) {
      const std::uint16_t before = uses(mark);
      mark.uses = before > 0xFFFF - kUseUnit ? std::uint16_t{0xFFFF}
                                             : static_cast<std::uint16_t>(before + kUseUnit);
    }
    mark.stamp = mark.stamp > now ? mark.stamp : now;
  }
};

/// Empties all slots.
struct CacheClear {
  CacheSlots cache;
};

/// Makes the caches of all jobs hold no row.
void clear_cache(Context& ctx, std::span<const CacheClear> jobs);

/// Rows that are looked up, and nothing else.
struct CacheProbe {
  CacheSlots cache;
  std::int64_t count = 0;
  const std::int64_t* rows = nullptr;  ///< [count]
  std::int64_t* slots = nullptr;       ///< [count] where each lies, or -1
  SlotFlag but = SlotFlag::kNone;      ///< rows with this flag count as absent
};

/// Looks the rows of all jobs up; changes nothing.
void probe_cache(Context& ctx, std::span<const CacheProbe> jobs);

/// Which rows of a job are meant.
enum class CacheRows : std::uint8_t {
  kAll,
  kLacking,  ///< those whose slot is -1; others are left as they are
};

/// What cache_take() has found.
struct CacheTaken {
  std::int64_t found = 0;    ///< rows that have been pinned
  std::int64_t fresh = 0;    ///< of these, such that nobody had pinned
  std::int64_t loading = 0;  ///< of these, such that their slots do not have yet
  std::int64_t wanted = 0;   ///< rows that lie in a slot, and had no room

  friend bool operator==(const CacheTaken&, const CacheTaken&) = default;
};

/// Rows that a batch asks for.
struct CacheTake {
  CacheSlots cache;
  CacheTime time;
  CacheRows which = CacheRows::kAll;
  std::int64_t count = 0;
  const std::int64_t* rows = nullptr;  ///< [count] all different
  std::int64_t* slots = nullptr;       ///< [count] where each lies, or -1
  std::int64_t room = 0;               ///< rows that may be pinned beside those that are
  CacheTaken* taken = nullptr;         ///< on the host
};

/// Looks rows up, pins those that have a slot, and touches them. Where there is no room for all,
/// the first have it; the slot of others is -1 too, and they get flag kWanted, which a pin takes
/// away. At most 255 batches pin a slot.
void take_cached_rows(Context& ctx, std::span<const CacheTake> jobs);

/// Where the search for a slot outside of a row's set goes on; on the host.
struct CacheHands {
  std::int64_t unused = 0;  ///< among slots that have had no row yet, in the order of nth_unused()
  std::int64_t spill = 0;   ///< among the slots behind the sets
  std::int64_t any = 0;     ///< among all

  friend bool operator==(const CacheHands&, const CacheHands&) = default;
};

/// What place_rows() has done.
struct CachePlaced {
  std::int64_t placed = 0;   ///< rows that got a slot
  std::int64_t spilled = 0;  ///< of these, outside of their set
  std::int64_t evicted = 0;  ///< rows that lost theirs
  std::int64_t changed = 0;  ///< of these, such that the slower memory has not

  friend bool operator==(const CachePlaced&, const CachePlaced&) = default;
};

/// Rows that are to get slots.
struct CachePlace {
  CacheSlots cache;
  CacheTime time;
  std::int64_t count = 0;
  const std::int64_t* rows = nullptr;  ///< [count] all different
  std::int64_t* slots = nullptr;       ///< [count] -1 where a row lacks one, which lies nowhere
  std::int64_t room = 0;               ///< slots that may be pinned beside those that are
  CacheHands* hands = nullptr;
  std::int64_t* placed_rows = nullptr;    ///< rows that got a slot, in their order
  std::int64_t* placed_slots = nullptr;   ///< and the slots
  std::int64_t* leaving_rows = nullptr;   ///< changed rows that lost theirs
  std::int64_t* leaving_slots = nullptr;  ///< where their values still are
  CachePlaced* result = nullptr;          ///< on the host
};

/// Gives slots to the first `room` rows that lack one, with a pin and flag kLoading. A row takes a
/// way of its set that is free; else, as long as there is one, a slot anywhere that has had no row
/// yet, so that nothing leaves a cache which has room for all. Then, of slots that nobody has
/// pinned: the best way of its set; else the next behind the sets; else the next of all. Under
/// kComing a slot whose row is wanted goes behind all others in each, and is taken only where no
/// other is left anywhere. The room is at most the slots that nobody has pinned, and where rows
/// have been found to lie in a slot that there was no room to pin, it is none.
void place_rows(Context& ctx, std::span<const CachePlace> jobs);

/// Whether marks lose a pin.
enum class CachePins : std::uint8_t { kKeep, kGiveUp };

/// Changes of marks.
struct CacheMark {
  CacheSlots cache;
  std::int64_t count = 0;
  const std::int64_t* slots = nullptr;  ///< [count] all different; those below 0 are left out
  SlotFlag set = SlotFlag::kNone;
  SlotFlag clear = SlotFlag::kNone;
  CachePins pins = CachePins::kKeep;
  std::int64_t* freed = nullptr;  ///< on the host: slots that nobody has pinned any more
};

/// Sets, clears and unpins; a flag that is set and cleared is cleared.
void mark_slots(Context& ctx, std::span<const CacheMark> jobs);

/// A search for changed rows.
struct ChangedSlots {
  CacheSlots cache;
  Range slots;                    ///< that are looked at
  std::int64_t* rows = nullptr;   ///< [as many as slots] rows with flag kChanged
  std::int64_t* found = nullptr;  ///< [as many] their slots, which ascend
  std::int64_t* count = nullptr;  ///< on the host: how many there are
};

/// Lists the changed rows of a range of slots.
void find_changed_slots(Context& ctx, std::span<const ChangedSlots> jobs);

namespace cpu {
/// In one task pool.
void clear_cache(Context& ctx, std::span<const CacheClear> jobs);
void probe_cache(Context& ctx, std::span<const CacheProbe> jobs);
/// In one task pool, a task per job where room is short.
void take_cached_rows(Context& ctx, std::span<const CacheTake> jobs);
/// In one task pool, a task per job.
void place_rows(Context& ctx, std::span<const CachePlace> jobs);
/// In one task pool.
void mark_slots(Context& ctx, std::span<const CacheMark> jobs);
/// In one task pool, a task per job.
void find_changed_slots(Context& ctx, std::span<const ChangedSlots> jobs);
}  // namespace cpu

namespace cuda {
/// All wait for what they return on the host.
void clear_cache(Context& ctx, std::span<const CacheClear> jobs);
void probe_cache(Context& ctx, std::span<const CacheProbe> jobs);
void take_cached_rows(Context& ctx, std::span<const CacheTake> jobs);
void place_rows(Context& ctx, std::span<const CachePlace> jobs);
void mark_slots(Context& ctx, std::span<const CacheMark> jobs);
void find_changed_slots(Context& ctx, std::span<const ChangedSlots> jobs);
}  // namespace cuda

namespace reference {
/// Plain loops on the calling thread, for tests.
void clear_cache(Context& ctx, std::span<const CacheClear> jobs);
void probe_cache(Context& ctx, std::span<const CacheProbe> jobs);
void take_cached_rows(Context& ctx, std::span<const CacheTake> jobs);
void place_rows(Context& ctx, std::span<const CachePlace> jobs);
void mark_slots(Context& ctx, std::span<const CacheMark> jobs);
void find_changed_slots(Context& ctx, std::span<const ChangedSlots> jobs);
}  // namespace reference

}  // namespace weft::kernels
