// take, in three steps of a pipeline over the rows of a task, so that lines are there when they are
// needed:
//   ask for the lines of the row's set
//   compare its ways with the row, vectors at a time;  ask for the mark of the slot that has it, or
//     for the first of the rows that the set has elsewhere
//   walk their list, if none has it;  pin, touch
// place, in the order of rows:
//   a pass over the marks of the set for the best way, unless another slot was never used;  else
//   the hands go on
//
// Per row that is found a line (four, with 32 ways) of rows and one of marks, at random places of
// 16 bytes a slot: of a million slots these are in the third cache at best. Hands that have been
// all the way round for nothing do not start again in the same call, since no slot becomes free in
// it.

#include "weft/kernels/cache_slots.h"

#include <algorithm>
#include <array>
#include <atomic>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "weft/kernels/cpu/cache_slots.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/kernels/cpu/rows-inl.h"
#include "weft/kernels/tasks.h"

HWY_BEFORE_NAMESPACE();

namespace weft::kernels::HWY_NAMESPACE {

/// The way of [ways] that has `row`; -1.
HWY_INLINE std::int64_t find_way(const std::int64_t* HWY_RESTRICT rows,
                                 std::int64_t ways,
                                 std::int64_t row) {
  const hn::CappedTag<std::int64_t, 8> d;
  const auto lanes = static_cast<std::int64_t>(hn::Lanes(d));
  const auto wanted = hn::Set(d, row);
  for (std::int64_t w = 0; w < ways; w += lanes) {
    const auto at = hn::FindFirstTrue(d, hn::Eq(hn::LoadU(d, rows + w), wanted));
    if (at >= 0) {
      return w + static_cast<std::int64_t>(at);
    }
  }
  return -1;
}

/// The slot of a row that lies outside of its set, from one in the set's list on; -1.
HWY_INLINE std::int64_t find_displaced(const CacheSlots& cache,
                                       std::int64_t slot,
                                       std::int64_t row) {
  while (slot >= 0 && cache.rows[slot] != row) {
    slot = cache.nexts[slot];
  }
  return slot;
}

/// Asks for what is looked at of a slot that a row may lie in, or does.
HWY_INLINE void prefetch_slot(const CacheSlots& cache, std::int64_t slot) {
  hwy::Prefetch(cache.rows + slot);
  hwy::Prefetch(cache.nexts + slot);
  hwy::Prefetch(cache.marks + slot);
}

constexpr std::int64_t kAhead = 12;  // rows from one step of the pipeline to the next
constexpr std::size_t kInHand = 32;  // a power of two above both distances

/// Sets and slots of the rows in the pipeline.
struct InHand {
  std::array<std::int64_t, kInHand> sets;   // -1: nobody asks for the row
  std::array<std::int64_t, kInHand> slots;  // of its set's ways; -1
  std::array<std::int64_t, kInHand> lists;  // where its set's list begins, if none has it; -1

  static std::size_t place(std::int64_t i) { return at(i) % kInHand; }
};

/// The set of a row, whose lines are asked for.
HWY_INLINE std::int64_t begin_row(const CacheSlots& cache, std::int64_t row) {
  const std::int64_t set = cache.set_of(row);
  hwy::Prefetch(cache.heads + set);
  for (std::int64_t w = 0; w < cache.ways; w += 8) {
    hwy::Prefetch(cache.rows + set * cache.ways + w);
  }
  return set;
}

/// The ways of the row's set; what comes next is asked for.
HWY_INLINE void look_in_set(const CacheSlots& cache,
                            std::int64_t row,
                            InHand& hand,
                            std::size_t place) {
  const std::int64_t set = hand.sets[place];
  hand.slots[place] = hand.lists[place] = -1;
  if (set < 0) {
    return;
  }
  const std::int64_t way = find_way(cache.rows + set * cache.ways, cache.ways, row);
  if (way >= 0) {
    hand.slots[place] = set * cache.ways + way;
    hwy::Prefetch(cache.marks + hand.slots[place]);
  } else if (const std::int64_t list = cache.heads[set]; list >= 0) {
    hand.lists[place] = list;
    prefetch_slot(cache, list);
  }
}

/// Calls use(i, slot) for rows i of [rows) that are asked for, in their order; slot is -1 where
/// none has the row. Marks of slots have been asked for.
template <class Asked, class Use>
HWY_INLINE void for_slots(const CacheSlots& cache,
                          const std::int64_t* numbers,
                          Range rows,
                          const Asked& asked,
                          const Use& use) {
  InHand hand;
  for (std::int64_t i = rows.begin; i < rows.end + 2 * kAhead; ++i) {
    if (i < rows.end) {
      hand.sets[InHand::place(i)] = asked(i) ? begin_row(cache, numbers[i]) : -1;
    }
    const std::int64_t next = i - kAhead;
    if (next >= rows.begin && next < rows.end) {
      look_in_set(cache, numbers[next], hand, InHand::place(next));
    }
    const std::int64_t last = next - kAhead;
    if (last < rows.begin || hand.sets[InHand::place(last)] < 0) {
      continue;
    }
    const std::int64_t slot = hand.slots[InHand::place(last)];
    use(last,
        slot >= 0 ? slot : find_displaced(cache, hand.lists[InHand::place(last)], numbers[last]));
  }
}

void probe(const CacheProbe& job, Range rows) {
  for_slots(
      job.cache, job.rows, rows, [](std::int64_t) HWY_ATTR { return true; },
      [&](std::int64_t i, std::int64_t slot)
          HWY_ATTR { job.slots[i] = slot >= 0 && job.cache.marks[slot].has(job.but) ? -1 : slot; });
}

CacheTaken take(const CacheTake& job, Range rows) {
  CacheTaken taken;
  const auto use = [&](std::int64_t i, std::int64_t slot) HWY_ATTR {
    job.slots[i] = -1;
    if (slot < 0) {
      return;
    }
    SlotMark mark = job.cache.marks[slot];
    if (mark.pins == 0 && taken.fresh == job.room) {
      job.cache.marks[slot].set(SlotFlag::kWanted);
      ++taken.wanted;
      return;
    }
    taken.fresh += mark.pins == 0 ? 1 : 0;
    taken.loading += mark.has(SlotFlag::kLoading) ? 1 : 0;
    ++taken.found;
    ++mark.pins;
    mark.clear(SlotFlag::kWanted);
    job.time.touch(mark);
    job.cache.marks[slot] = mark;
    job.slots[i] = slot;
  };
  if (job.which == CacheRows::kAll) {
    for_slots(job.cache, job.rows, rows, [](std::int64_t) HWY_ATTR { return true; }, use);
  } else {
    for_slots(
        job.cache, job.rows, rows, [&](std::int64_t i) HWY_ATTR { return job.slots[i] < 0; }, use);
  }
  return taken;
}

}  // namespace weft::kernels::HWY_NAMESPACE

HWY_AFTER_NAMESPACE();

#if HWY_ONCE

namespace weft::kernels {

HWY_EXPORT(probe);
HWY_EXPORT(take);

namespace {

constexpr std::int64_t kCacheRowsPerTask = 4096;
constexpr std::int64_t kMarksAhead = 24;

RowWork by_rows(std::int64_t count) {
  return {.rows = {0, count}, .row_bytes = 1, .task_bytes = kCacheRowsPerTask};
}

void add(std::int64_t& to, std::int64_t count) {
  std::atomic_ref(to).fetch_add(count, std::memory_order_relaxed);
}

/// Gives slots to the rows of a job.
class Placing {
 public:
  explicit Placing(const CachePlace& job)
      : job_(job), cache_(job.cache), first_spill_(job.cache.sets * job.cache.ways) {}

  CachePlaced run() {
    std::int64_t ahead = 0;
    for (std::int64_t i = 0; i < job_.count && done_.placed < job_.room; ++i) {
      for (const std::int64_t end = std::min(i + kSetsAhead, job_.count); ahead < end; ++ahead) {
        if (job_.slots[ahead] < 0) {
          ask_for(cache_.set_of(job_.rows[ahead]));
        }
      }
      if (job_.slots[i] < 0) {
        place(i);
      }
    }
    return done_;
  }

 private:
  static constexpr std::int64_t kSetsAhead = 16;

  /// What is left of the rest of the slots that may be taken.
  struct Round {
    bool spill_is_over = false;
    bool any_is_over = false;
  };

  void ask_for(std::int64_t set) const {
    for (std::int64_t w = 0; w < cache_.ways; w += 8) {
      __builtin_prefetch(cache_.rows + set * cache_.ways + w);
      __builtin_prefetch(cache_.marks + set * cache_.ways + w);
    }
  }

  [[nodiscard]] bool is_wanted(std::int64_t slot) const {
    return job_.time.policy == CachePolicy::kComing && cache_.marks[slot].has(SlotFlag::kWanted);
  }

  /// More is worse to keep. A free way goes before all.
  [[nodiscard]] std::uint64_t worth(std::int64_t slot) const {
    if (cache_.rows[slot] < 0) {
      return 0;
    }
    const SlotMark& mark = cache_.marks[slot];
    const std::uint64_t uses = job_.time.policy == CachePolicy::kLfu ? job_.time.uses(mark) : 0;
    const std::uint64_t wanted = is_wanted(slot) ? 2 : 1;
    return wanted << 48 | uses << 32 | mark.stamp;
  }

  [[nodiscard]] std::int64_t best_way(std::int64_t set) const {
    std::int64_t best = -1;
    std::uint64_t least = 0;
    for (std::int64_t slot = set * cache_.ways; slot < (set + 1) * cache_.ways; ++slot) {
      if (cache_.marks[slot].pins != 0) {
        continue;
      }
      const std::uint64_t own = worth(slot);
      if (best < 0 || own < least) {
        best = slot;
        least = own;
      }
    }
    return best;
  }

  /// The next slot from the hand on, once round; -1.
  [[nodiscard]] std::int64_t go_round(Range slots, std::int64_t& hand, bool wanted_too) const {
    for (std::int64_t i = 0; i < slots.size(); ++i) {
      const std::int64_t slot = slots.begin + hand;
      hand = hand + 1 == slots.size() ? 0 : hand + 1;
      if (cache_.marks[slot].pins == 0 && (wanted_too || !is_wanted(slot))) {
        return slot;
      }
    }
    return -1;
  }

  std::int64_t elsewhere(bool wanted_too) {
    Round& round = rounds_[wanted_too ? 1 : 0];
    if (!round.spill_is_over) {
      const std::int64_t slot =
          go_round({first_spill_, cache_.slots()}, job_.hands->spill, wanted_too);
      if (slot >= 0) {
        return slot;
      }
      round.spill_is_over = true;
    }
    if (!round.any_is_over) {
      const std::int64_t slot = go_round({0, cache_.slots()}, job_.hands->any, wanted_too);
      if (slot >= 0) {
        return slot;
      }
      round.any_is_over = true;
    }
    return -1;
  }

  /// A slot that has had no row; -1. Slots do not become empty again, so the search goes on.
  [[nodiscard]] std::int64_t next_unused() const {
    for (std::int64_t& n = job_.hands->unused; n < cache_.slots(); ++n) {
      if (const std::int64_t slot = cache_.nth_unused(n); cache_.rows[slot] < 0) {
        return slot;
      }
    }
    return -1;
  }

  std::int64_t choose(std::int64_t row) {
    const std::int64_t way = best_way(cache_.set_of(row));
    if (way >= 0 && cache_.rows[way] < 0) {
      return way;
    }
    std::int64_t slot = next_unused();
    if (slot >= 0) {
      return slot;
    }
    if (way >= 0 && !is_wanted(way)) {
      return way;
    }
    slot = elsewhere(false);
    if (slot < 0) {
      slot = way >= 0 ? way : elsewhere(true);
    }
    WEFT_CHECK(slot >= 0, "no slot of {} is free", cache_.slots());
    return slot;
  }

  /// The set in whose list a slot's row is; -1 where it lies in its set.
  [[nodiscard]] std::int64_t listed_in(std::int64_t slot) const {
    const std::int64_t set = cache_.set_of(cache_.rows[slot]);
    const std::int64_t first = set * cache_.ways;
    return slot >= first && slot < first + cache_.ways ? -1 : set;
  }

  void empty(std::int64_t slot) {
    ++done_.evicted;
    if (cache_.marks[slot].has(SlotFlag::kChanged)) {
      job_.leaving_rows[done_.changed] = cache_.rows[slot];
      job_.leaving_slots[done_.changed] = slot;
      ++done_.changed;
    }
    const std::int64_t set = listed_in(slot);
    if (set < 0) {
      return;
    }
    std::int32_t* link = cache_.heads + set;
    while (*link != slot) {
      link = cache_.nexts + *link;
    }
    *link = cache_.nexts[slot];
    cache_.nexts[slot] = -1;
  }

  void place(std::int64_t i) {
    const std::int64_t row = job_.rows[i];
    const std::int64_t slot = choose(row);
    if (cache_.rows[slot] >= 0) {
      empty(slot);
    }
    cache_.rows[slot] = row;
    SlotMark mark{.stamp = job_.time.now, .uses = kUseUnit, .pins = 1};
    mark.set(SlotFlag::kLoading);
    cache_.marks[slot] = mark;
    if (const std::int64_t set = listed_in(slot); set >= 0) {
      cache_.nexts[slot] = cache_.heads[set];
      cache_.heads[set] = static_cast<std::int32_t>(slot);
      ++done_.spilled;
    }
    job_.slots[i] = slot;
    job_.placed_rows[done_.placed] = row;
    job_.placed_slots[done_.placed] = slot;
    ++done_.placed;
  }

  const CachePlace& job_;
  const CacheSlots& cache_;
  std::int64_t first_spill_;
  std::array<Round, 2> rounds_;  // of slots that nobody wants, and of all
  CachePlaced done_;
};

void mark_some(const CacheMark& job, Range slots) {
  std::int64_t freed = 0;
  for (std::int64_t i = slots.begin; i < slots.end; ++i) {
    if (const std::int64_t k = i + kMarksAhead; k < slots.end && job.slots[k] >= 0) {
      __builtin_prefetch(job.cache.marks + job.slots[k], 1);
    }
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
    add(*job.freed, freed);
  }
}

/// Tasks of one for each job.
template <typename Job, typename Run>
void run_jobs(Context& ctx, std::span<const Job> jobs, const Run& run) {
  run_blocks(
      ctx, static_cast<std::int64_t>(jobs.size()), [](std::int64_t) { return std::int64_t{1}; },
      [&](std::int64_t i, std::int64_t) { run(jobs[at(i)]); });
}

}  // namespace

void cpu::clear_cache(Context& ctx, std::span<const CacheClear> jobs) {
  run_jobs(ctx, jobs, [](const CacheClear& job) {
    std::fill_n(job.cache.rows, job.cache.slots(), -1);
    std::fill_n(job.cache.marks, job.cache.slots(), SlotMark{});
    std::fill_n(job.cache.heads, job.cache.sets, -1);
    std::fill_n(job.cache.nexts, job.cache.slots(), -1);
  });
}

void cpu::probe_cache(Context& ctx, std::span<const CacheProbe> jobs) {
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return by_rows(jobs[at(i)].count); },
      [&](std::int64_t i, Range rows) { HWY_DYNAMIC_DISPATCH(probe)(jobs[at(i)], rows); });
}

void cpu::take_cached_rows(Context& ctx, std::span<const CacheTake> jobs) {
  for (const CacheTake& job : jobs) {
    *job.taken = {};
  }
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) {
        RowWork work = by_rows(jobs[at(i)].count);
        if (jobs[at(i)].room < jobs[at(i)].count) {
          work.task_bytes = std::max<std::int64_t>(work.rows.size(), 1);
        }
        return work;
      },
      [&](std::int64_t i, Range rows) {
        const CacheTaken taken = HWY_DYNAMIC_DISPATCH(take)(jobs[at(i)], rows);
        CacheTaken& all = *jobs[at(i)].taken;
        add(all.found, taken.found);
        add(all.fresh, taken.fresh);
        add(all.loading, taken.loading);
        add(all.wanted, taken.wanted);
      });
}

void cpu::place_rows(Context& ctx, std::span<const CachePlace> jobs) {
  run_jobs(ctx, jobs, [](const CachePlace& job) { *job.result = Placing(job).run(); });
}

void cpu::mark_slots(Context& ctx, std::span<const CacheMark> jobs) {
  for (const CacheMark& job : jobs) {
    if (job.freed != nullptr) {
      *job.freed = 0;
    }
  }
  run_rows(
      ctx, static_cast<std::int64_t>(jobs.size()),
      [&](std::int64_t i) { return by_rows(jobs[at(i)].count); },
      [&](std::int64_t i, Range rows) { mark_some(jobs[at(i)], rows); });
}

void cpu::find_changed_slots(Context& ctx, std::span<const ChangedSlots> jobs) {
  run_jobs(ctx, jobs, [](const ChangedSlots& job) {
    std::int64_t count = 0;
    for (std::int64_t slot = job.slots.begin; slot < job.slots.end; ++slot) {
      if (job.cache.marks[slot].has(SlotFlag::kChanged)) {
        job.rows[count] = job.cache.rows[slot];
        job.found[count] = slot;
        ++count;
      }
    }
    *job.count = count;
  });
}

}  // namespace weft::kernels

#endif  // HWY_ONCE
