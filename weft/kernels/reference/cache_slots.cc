#include "weft/kernels/cache_slots.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "weft/base/at.h"
#include "weft/base/error.h"

namespace weft::kernels {
namespace {

/// Where a row lies, in its set or elsewhere; -1.
std::int64_t plain_slot(const CacheSlots& cache, std::int64_t row) {
  std::int64_t slot = cache.slots() - 1;
  while (slot >= 0 && cache.rows[slot] != row) {
    --slot;
  }
  return slot;
}

bool is_displaced(const CacheSlots& cache, std::int64_t slot) {
  return slot >= cache.sets * cache.ways || slot / cache.ways != cache.set_of(cache.rows[slot]);
}

/// Takes a slot out of the list of its row's set, or puts it to the list's front.
void unlist(const CacheSlots& cache, std::int64_t slot) {
  std::int32_t* link = &cache.heads[cache.set_of(cache.rows[slot])];
  while (*link != slot) {
    link = &cache.nexts[*link];
  }
  *link = cache.nexts[slot];
  cache.nexts[slot] = -1;
}

void enlist(const CacheSlots& cache, std::int64_t slot) {
  std::int32_t& head = cache.heads[cache.set_of(cache.rows[slot])];
  cache.nexts[slot] = head;
  head = static_cast<std::int32_t>(slot);
}

bool is_wanted(const CachePlace& job, std::int64_t slot) {
  return job.time.policy == CachePolicy::kComing && job.cache.marks[slot].has(SlotFlag::kWanted);
}

/// The best way of a row's set that nobody has pinned; -1.
std::int64_t way_to_take(const CachePlace& job, std::int64_t set) {
  const auto badness = [&](std::int64_t slot) {
    const SlotMark& mark = job.cache.marks[slot];
    return std::tuple(job.cache.rows[slot] >= 0, is_wanted(job, slot),
                      job.time.policy == CachePolicy::kLfu ? job.time.uses(mark) : 0, mark.stamp);
  };
  std::int64_t best = -1;
  for (std::int64_t slot = set * job.cache.ways; slot < (set + 1) * job.cache.ways; ++slot) {
    if (job.cache.marks[slot].pins == 0 && (best < 0 || badness(slot) < badness(best))) {
      best = slot;
    }
  }
  return best;
}

/// The next slot of a range that nobody has pinned, and nobody wants; -1.
std::int64_t next_slot(const CachePlace& job, Range slots, std::int64_t& hand, bool wanted_too) {
  for (std::int64_t i = 0; i < slots.size(); ++i) {
    const std::int64_t slot = slots.begin + (hand + i) % slots.size();
    if (job.cache.marks[slot].pins == 0 && (wanted_too || !is_wanted(job, slot))) {
      hand = (hand + i + 1) % slots.size();
      return slot;
    }
  }
  return -1;
}

std::int64_t slot_to_take(const CachePlace& job, std::int64_t row) {
  const std::int64_t way = way_to_take(job, job.cache.set_of(row));
  if (way >= 0 && job.cache.rows[way] < 0) {
    return way;
  }
  std::int64_t& unused = job.hands->unused;
  while (unused < job.cache.slots() && job.cache.rows[job.cache.nth_unused(unused)] >= 0) {
    ++unused;
  }
  if (unused < job.cache.slots()) {
    return job.cache.nth_unused(unused);
  }
  if (way >= 0 && !is_wanted(job, way)) {
    return way;
  }
  const Range behind{job.cache.sets * job.cache.ways, job.cache.slots()};
  for (const bool wanted_too : {false, true}) {
    if (wanted_too && way >= 0) {
      return way;
    }
    std::int64_t slot = next_slot(job, behind, job.hands->spill, wanted_too);
    if (slot < 0) {
      slot = next_slot(job, {0, job.cache.slots()}, job.hands->any, wanted_too);
    }
    if (slot >= 0) {
      return slot;
    }
  }
  WEFT_CHECK(false, "no slot of {} is free", job.cache.slots());
  return -1;
}

}  // namespace

void reference::clear_cache(Context& /*ctx*/, std::span<const CacheClear> jobs) {
  for (const CacheClear& job : jobs) {
    std::fill_n(job.cache.rows, job.cache.slots(), -1);
    std::fill_n(job.cache.marks, job.cache.slots(), SlotMark{});
    std::fill_n(job.cache.heads, job.cache.sets, -1);
    std::fill_n(job.cache.nexts, job.cache.slots(), -1);
  }
}

void reference::probe_cache(Context& /*ctx*/, std::span<const CacheProbe> jobs) {
  for (const CacheProbe& job : jobs) {
    for (std::int64_t i = 0; i < job.count; ++i) {
      const std::int64_t slot = plain_slot(job.cache, job.rows[i]);
      job.slots[i] = slot >= 0 && job.cache.marks[slot].has(job.but) ? -1 : slot;
    }
  }
}

void reference::take_cached_rows(Context& /*ctx*/, std::span<const CacheTake> jobs) {
  for (const CacheTake& job : jobs) {
    CacheTaken taken;
    for (std::int64_t i = 0; i < job.count; ++i) {
      if (job.which == CacheRows::kLacking && job.slots[i] >= 0) {
        continue;
      }
      job.slots[i] = -1;
      const std::int64_t slot = plain_slot(job.cache, job.rows[i]);
      if (slot < 0) {
        continue;
      }
      SlotMark& mark = job.cache.marks[slot];
      if (mark.pins == 0 && taken.fresh == job.room) {
        mark.set(SlotFlag::kWanted);
        ++taken.wanted;
        continue;
      }
      taken.fresh += mark.pins == 0 ? 1 : 0;
      taken.loading += mark.has(SlotFlag::kLoading) ? 1 : 0;
      ++taken.found;
      ++mark.pins;
      mark.clear(SlotFlag::kWanted);
      job.time.touch(mark);
      job.slots[i] = slot;
    }
    *job.taken = taken;
  }
}

void reference::place_rows(Context& /*ctx*/, std::span<const CachePlace> jobs) {
  for (const CachePlace& job : jobs) {
    CachePlaced done;
    for (std::int64_t i = 0; i < job.count && done.placed < job.room; ++i) {
      if (job.slots[i] >= 0) {
        continue;
      }
      const std::int64_t slot = slot_to_take(job, job.rows[i]);
      SlotMark& mark = job.cache.marks[slot];
      if (job.cache.rows[slot] >= 0) {
        ++done.evicted;
        if (mark.has(SlotFlag::kChanged)) {
          job.leaving_rows[done.changed] = job.cache.rows[slot];
          job.leaving_slots[done.changed] = slot;
          ++done.changed;
        }
        if (is_displaced(job.cache, slot)) {
          unlist(job.cache, slot);
        }
      }
      job.cache.rows[slot] = job.rows[i];
      mark = {.stamp = job.time.now, .uses = kUseUnit, .pins = 1};
      mark.set(SlotFlag::kLoading);
      if (is_displaced(job.cache, slot)) {
        enlist(job.cache, slot);
        ++done.spilled;
      }
      job.slots[i] = slot;
      job.placed_rows[done.placed] = job.rows[i];
      job.placed_slots[done.placed] = slot;
      ++done.placed;
    }
    *job.result = done;
  }
}

void reference::mark_slots(Context& /*ctx*/, std::span<const CacheMark> jobs) {
  for (const CacheMark& job : jobs) {
    std::int64_t freed = 0;
    for (std::int64_t i = 0; i < job.count; ++i) {
      if (job.slots[i] < 0) {
        continue;
      }
      SlotMark& mark = job.cache.marks[job.slots[i]];
      mark.set(job.set);
      mark.clear(job.clear);
      if (job.pins == CachePins::kGiveUp) {
        --mark.pins;
        freed += mark.pins == 0 ? 1 : 0;
      }
    }
    if (job.freed != nullptr) {
      *job.freed = freed;
    }
  }
}

void reference::find_changed_slots(Context& /*ctx*/, std::span<const ChangedSlots> jobs) {
  for (const ChangedSlots& job : jobs) {
    *job.count = 0;
    for (std::int64_t slot = job.slots.begin; slot < job.slots.end; ++slot) {
      if (job.cache.marks[slot].has(SlotFlag::kChanged)) {
        job.rows[*job.count] = job.cache.rows[slot];
        job.found[*job.count] = slot;
        ++*job.count;
      }
    }
  }
}

}  // namespace weft::kernels
