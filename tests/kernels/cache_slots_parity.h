// The parity lists of the operations on a cache's slots: every backend passes them
// (tests/kernels/parity.h).
#pragma once

#include <algorithm>
#include <deque>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "tests/kernels/parity.h"
#include "weft/kernels/cache_slots.h"

namespace weft::kernels::test {

struct CacheCaseShape {
  std::int64_t sets = 1;
  std::int64_t ways = 8;
  std::int64_t spill = 0;
  CachePolicy policy = CachePolicy::kLru;
  std::int64_t rows = 100;  ///< batches ask for some of so many
  std::int64_t batch = 10;  ///< rows of a batch at most
  std::int64_t rounds = 60;
};

/// Lists of one call, on the host and on a device.
struct CacheLists {
  Copied<std::int64_t> rows, slots, placed_rows, placed_slots, leaving_rows, leaving_slots;

  explicit CacheLists(const std::vector<std::int64_t>& asked)
      : rows(asked),
        slots(std::vector<std::int64_t>(asked.size(), -7)),
        placed_rows(slots.values()),
        placed_slots(slots.values()),
        leaving_rows(slots.values()),
        leaving_slots(slots.values()) {}

  void place(Context& ctx) {
    for (Copied<std::int64_t>* one : all()) {
      one->place(ctx);
    }
  }

  [[nodiscard]] bool same_bits(Context& ctx) {
    const auto lists = all();
    return std::all_of(lists.begin(), lists.end(),
                       [&](const auto* one) { return one->same_bits(ctx); });
  }

 private:
  std::vector<Copied<std::int64_t>*> all() {
    return {&rows, &slots, &placed_rows, &placed_slots, &leaving_rows, &leaving_slots};
  }
};

/// A cache on the host and one on a device, and batches that two of them at a time hold.
class CacheCase {
 public:
  CacheCase(Context& ctx, const CacheCaseShape& shape, std::uint64_t seed)
      : ctx_(ctx),
        shape_(shape),
        random_(seed),
        rows_(garbage<std::int64_t>(slots())),
        marks_(garbage<SlotMark>(slots())),
        heads_(garbage<std::int32_t>(shape.sets)),
        nexts_(garbage<std::int32_t>(slots())) {
    tested_ = view(rows_.place(ctx), marks_.place(ctx), heads_.place(ctx), nexts_.place(ctx));
    plain_ = view(rows_.host(), marks_.host(), heads_.host(), nexts_.host());
    run(&clear_cache, &reference::clear_cache, CacheClear{tested_}, CacheClear{plain_});
    expect_same("clear");
  }

  /// Batches come, are held while the next one comes, and go.
  void run_rounds() {
    for (std::int64_t round = 1; round <= shape_.rounds && !::testing::Test::HasFailure();
         ++round) {
      time_ = {.policy = shape_.policy, .now = static_cast<std::uint32_t>(round), .half_life = 5};
      held_.emplace_back(draw());
      held_.back().place(ctx_);
      CacheLists& batch = held_.back();
      const std::int64_t room = std::min(random_() % 3 == 0 ? below(random_, 4) : free_, free_);
      place(batch, room - take(batch, CacheRows::kAll, room));
      if (random_() % 4 == 0) {
        const std::int64_t all = free_;
        place(batch, all - take(batch, CacheRows::kLacking, all));
      }
      mark(batch, SlotFlag::kNone, SlotFlag::kLoading, CachePins::kKeep);
      probe();
      if (held_.size() > 1 || random_() % 4 == 0) {
        mark(held_.front(), random_() % 2 == 0 ? SlotFlag::kChanged : SlotFlag::kNone,
             SlotFlag::kNone, CachePins::kGiveUp);
        held_.pop_front();
      }
      list_changed();
    }
  }

  std::int64_t evicted = 0, changed = 0, spilled = 0, wanted = 0;

 private:
  [[nodiscard]] std::int64_t slots() const { return shape_.sets * shape_.ways + shape_.spill; }

  template <typename T>
  static std::vector<T> garbage(std::int64_t count) {
    std::vector<T> values(static_cast<std::size_t>(count));
    std::memset(static_cast<void*>(values.data()), 0x5A, values.size() * sizeof(T));
    return values;
  }

  [[nodiscard]] CacheSlots view(std::int64_t* rows,
                                SlotMark* marks,
                                std::int32_t* heads,
                                std::int32_t* nexts) const {
    return {shape_.sets, shape_.ways, shape_.spill, rows, marks, heads, nexts};
  }

  template <typename Job>
  void run(void (*tested)(Context&, std::span<const Job>),
           void (*plain)(Context&, std::span<const Job>),
           const Job& tested_job,
           const Job& plain_job) {
    tested(ctx_, std::span(&tested_job, 1));
    plain(ctx_, std::span(&plain_job, 1));
  }

  void expect_same(const char* what) {
    EXPECT_TRUE(rows_.same_bits(ctx_)) << what << ", rows at " << time_.now;
    EXPECT_TRUE(marks_.same_bits(ctx_)) << what << ", marks at " << time_.now;
    EXPECT_TRUE(heads_.same_bits(ctx_)) << what << ", heads at " << time_.now;
    EXPECT_TRUE(nexts_.same_bits(ctx_)) << what << ", nexts at " << time_.now;
    for (CacheLists& batch : held_) {
      EXPECT_TRUE(batch.same_bits(ctx_)) << what << ", lists at " << time_.now;
    }
  }

  /// Few rows more often than others.
  std::vector<std::int64_t> draw() {
    std::set<std::int64_t> rows;
    for (std::int64_t i = below(random_, shape_.batch + 1); i > 0; --i) {
      const std::int64_t most = random_() % 2 == 0 ? shape_.rows / 8 + 1 : shape_.rows;
      rows.insert(below(random_, most));
    }
    return {rows.begin(), rows.end()};
  }

  /// Returns how much of the room it has used.
  std::int64_t take(CacheLists& batch, CacheRows which, std::int64_t room) {
    CacheTaken got;
    CacheTaken expected;
    CacheTake tested{.cache = tested_,
                     .time = time_,
                     .which = which,
                     .count = std::ssize(batch.rows.values()),
                     .rows = batch.rows.placed(),
                     .slots = batch.slots.placed(),
                     .room = room,
                     .taken = &got};
    CacheTake plain = tested;
    plain.cache = plain_;
    plain.rows = batch.rows.host();
    plain.slots = batch.slots.host();
    plain.taken = &expected;
    run(&take_cached_rows, &reference::take_cached_rows, tested, plain);
    EXPECT_EQ(got, expected);
    expect_same("take");
    free_ -= got.fresh;
    wanted += got.wanted;
    return got.fresh;
  }

  void place(CacheLists& batch, std::int64_t room) {
    CachePlaced got;
    CachePlaced expected;
    CacheHands tested_hands = hands_;
    CachePlace tested{.cache = tested_,
                      .time = time_,
                      .count = std::ssize(batch.rows.values()),
                      .rows = batch.rows.placed(),
                      .slots = batch.slots.placed(),
                      .room = room,
                      .hands = &tested_hands,
                      .placed_rows = batch.placed_rows.placed(),
                      .placed_slots = batch.placed_slots.placed(),
                      .leaving_rows = batch.leaving_rows.placed(),
                      .leaving_slots = batch.leaving_slots.placed(),
                      .result = &got};
    CachePlace plain = tested;
    plain.cache = plain_;
    plain.rows = batch.rows.host();
    plain.slots = batch.slots.host();
    plain.hands = &hands_;
    plain.placed_rows = batch.placed_rows.host();
    plain.placed_slots = batch.placed_slots.host();
    plain.leaving_rows = batch.leaving_rows.host();
    plain.leaving_slots = batch.leaving_slots.host();
    plain.result = &expected;
    run(&place_rows, &reference::place_rows, tested, plain);
    EXPECT_EQ(got, expected);
    EXPECT_EQ(tested_hands, hands_);
    expect_same("place");
    free_ -= got.placed;
    evicted += got.evicted;
    changed += got.changed;
    spilled += got.spilled;
  }

  void mark(CacheLists& batch, SlotFlag set, SlotFlag clear, CachePins pins) {
    std::int64_t got = 0;
    std::int64_t expected = 0;
    CacheMark tested{.cache = tested_,
                     .count = std::ssize(batch.rows.values()),
                     .slots = batch.slots.placed(),
                     .set = set,
                     .clear = clear,
                     .pins = pins,
                     .freed = &got};
    CacheMark plain = tested;
    plain.cache = plain_;
    plain.slots = batch.slots.host();
    plain.freed = &expected;
    run(&mark_slots, &reference::mark_slots, tested, plain);
    EXPECT_EQ(got, expected);
    expect_same("mark");
    free_ += got;
  }

  void probe() {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(shape_.rows));
    std::iota(rows.begin(), rows.end(), 0);
    Copied<std::int64_t> asked(rows);
    Copied<std::int64_t> found(rows);
    for (const SlotFlag but : {SlotFlag::kNone, SlotFlag::kChanged}) {
      CacheProbe tested{.cache = tested_,
                        .count = shape_.rows,
                        .rows = asked.place(ctx_),
                        .slots = found.place(ctx_),
                        .but = but};
      CacheProbe plain = tested;
      plain.cache = plain_;
      plain.rows = asked.host();
      plain.slots = found.host();
      run(&probe_cache, &reference::probe_cache, tested, plain);
      EXPECT_TRUE(found.same_bits(ctx_)) << "probe at " << time_.now;
    }
  }

  void list_changed() {
    const std::int64_t begin = below(random_, slots());
    const Range range{begin, begin + below(random_, slots() - begin + 1)};
    Copied<std::int64_t> rows(std::vector<std::int64_t>(static_cast<std::size_t>(range.size())));
    Copied<std::int64_t> found(rows.values());
    std::int64_t got = -1;
    std::int64_t expected = -1;
    ChangedSlots tested{.cache = tested_,
                        .slots = range,
                        .rows = rows.place(ctx_),
                        .found = found.place(ctx_),
                        .count = &got};
    ChangedSlots plain = tested;
    plain.cache = plain_;
    plain.rows = rows.host();
    plain.found = found.host();
    plain.count = &expected;
    run(&find_changed_slots, &reference::find_changed_slots, tested, plain);
    EXPECT_EQ(got, expected);
    EXPECT_TRUE(rows.same_bits(ctx_) && found.same_bits(ctx_));
  }

  Context& ctx_;
  CacheCaseShape shape_;
  Random random_;
  Copied<std::int64_t> rows_;
  Copied<SlotMark> marks_;
  Copied<std::int32_t> heads_, nexts_;
  CacheSlots tested_, plain_;
  CacheTime time_;
  CacheHands hands_;
  std::int64_t free_ = slots();
  std::deque<CacheLists> held_;
};

/// One set and many, 8 ways and 32, no slot behind the sets and some, batches that fit and such
/// that do not.
inline void expect_cache_slots_parity(Device& device) {
  run_on(device, [&](Context& ctx) {
    std::int64_t evicted = 0, changed = 0, spilled = 0, wanted = 0;
    std::uint64_t seed = 1;
    for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kLfu, CachePolicy::kComing}) {
      for (const std::int64_t ways : {8, 32}) {
        for (const std::int64_t sets : {1, 3, 16}) {
          for (const std::int64_t spill : {0, 5}) {
            const std::int64_t slots = sets * ways + spill;
            for (const std::int64_t batch : {slots / 3, slots}) {
              CacheCase one(ctx,
                            {.sets = sets,
                             .ways = ways,
                             .spill = spill,
                             .policy = policy,
                             .rows = 2 * slots,
                             .batch = batch,
                             .rounds = 25},
                            ++seed);
              one.run_rounds();
              evicted += one.evicted;
              changed += one.changed;
              spilled += one.spilled;
              wanted += one.wanted;
            }
          }
        }
      }
    }
    EXPECT_GT(evicted, changed);
    EXPECT_GT(changed, 100);
    EXPECT_GT(spilled, 100);
    EXPECT_GT(wanted, 100);
  });
}

/// More rows than a task has.
inline void expect_large_cache_parity(Device& device) {
  run_on(device, [](Context& ctx) {
    CacheCase one(
        ctx, {.sets = 800, .ways = 8, .spill = 100, .rows = 8000, .batch = 9000, .rounds = 3}, 1);
    one.run_rounds();
  });
}

}  // namespace weft::kernels::test
