// Slots of a cache against plain loops, and what the policies promise.

#include "weft/kernels/cache_slots.h"

#include <memory>
#include <vector>

#include <gtest/gtest.h>

#include "tests/kernels/cache_slots_parity.h"

namespace weft::kernels::test {
namespace {

TEST(CacheSlots, PassTheirParityListsOnEveryTarget) {
  on_every_target(expect_cache_slots_parity);
  for (const int threads : {1, 3}) {
    expect_large_cache_parity(*make_device({.threads = threads}));
  }
}

/// One set of eight ways, in host memory.
class OneSet {
 public:
  explicit OneSet(CachePolicy policy) : policy_(policy) {
    const CacheClear clear{view()};
    clear_cache(ctx_, std::span(&clear, 1));
  }

  [[nodiscard]] CacheSlots view() {
    return {1, 8, 0, rows_.data(), marks_.data(), heads_.data(), nexts_.data()};
  }

  /// A batch that is released at once; returns what it had to place.
  std::int64_t batch(std::vector<std::int64_t> rows) {
    std::vector<std::int64_t> slots(rows.size());
    take(rows, slots, 8);
    std::vector<std::int64_t> lists(4 * rows.size());
    CachePlaced placed;
    const CachePlace place{.cache = view(),
                           .time = time(),
                           .count = std::ssize(rows),
                           .rows = rows.data(),
                           .slots = slots.data(),
                           .room = 8,
                           .hands = &hands_,
                           .placed_rows = lists.data(),
                           .placed_slots = lists.data() + rows.size(),
                           .leaving_rows = lists.data() + 2 * rows.size(),
                           .leaving_slots = lists.data() + 3 * rows.size(),
                           .result = &placed};
    place_rows(ctx_, std::span(&place, 1));
    const CacheMark mark{.cache = view(),
                         .count = std::ssize(rows),
                         .slots = slots.data(),
                         .clear = SlotFlag::kLoading,
                         .pins = CachePins::kGiveUp};
    mark_slots(ctx_, std::span(&mark, 1));
    return placed.placed;
  }

  CacheTaken take(const std::vector<std::int64_t>& rows,
                  std::vector<std::int64_t>& slots,
                  std::int64_t room) {
    ++now_;
    CacheTaken taken;
    const CacheTake job{.cache = view(),
                        .time = time(),
                        .count = std::ssize(rows),
                        .rows = rows.data(),
                        .slots = slots.data(),
                        .room = room,
                        .taken = &taken};
    take_cached_rows(ctx_, std::span(&job, 1));
    return taken;
  }

  bool has(std::int64_t row) {
    std::int64_t slot = 0;
    const CacheProbe probe{.cache = view(), .count = 1, .rows = &row, .slots = &slot};
    probe_cache(ctx_, std::span(&probe, 1));
    return slot >= 0;
  }

 private:
  [[nodiscard]] CacheTime time() const {
    return {.policy = policy_, .now = now_, .half_life = 100};
  }

  CachePolicy policy_;
  Context ctx_;
  std::uint32_t now_ = 0;
  CacheHands hands_;
  alignas(64) std::array<std::int64_t, 8> rows_ = {};
  std::array<SlotMark, 8> marks_ = {};
  std::array<std::int32_t, 1> heads_ = {};
  std::array<std::int32_t, 8> nexts_ = {};
};

TEST(CachePolicies, LeastRecentGoesFirst) {
  OneSet set(CachePolicy::kLru);
  EXPECT_EQ(set.batch({0, 1, 2, 3, 4, 5, 6, 7}), 8);
  EXPECT_EQ(set.batch({0, 1, 2, 4, 5, 6, 7}), 0);
  EXPECT_EQ(set.batch({8}), 1);
  EXPECT_FALSE(set.has(3));
  EXPECT_EQ(set.batch({9}), 1);
  EXPECT_FALSE(set.has(0)) << "the lowest way of equals";
  EXPECT_TRUE(set.has(8));
}

TEST(CachePolicies, LeastUsedGoesFirst) {
  OneSet set(CachePolicy::kLfu);
  for (int i = 0; i < 4; ++i) {
    set.batch({0, 1, 2, 3});
  }
  set.batch({4, 5, 6, 7});
  for (std::int64_t row = 8; row < 30; ++row) {
    set.batch({row});  // each once
  }
  for (const std::int64_t row : {0, 1, 2, 3, 29}) {
    EXPECT_TRUE(set.has(row)) << row;
  }
  for (int i = 0; i < 300; ++i) {
    set.batch({100 + i % 4});  // what was used often long ago is forgotten
  }
  set.batch({200, 201, 202, 203});
  EXPECT_TRUE(set.has(103));
  EXPECT_FALSE(set.has(0));
}

/// A row that a batch has found and could not pin is the last to go, though the oldest.
TEST(CachePolicies, WhatABatchWaitsForGoesLast) {
  for (const CachePolicy policy : {CachePolicy::kLru, CachePolicy::kComing}) {
    OneSet set(policy);
    set.batch({0});
    for (std::int64_t row = 1; row < 8; ++row) {
      set.batch({row});
    }
    std::vector<std::int64_t> slots(1);
    EXPECT_EQ(set.take({0}, slots, 0).wanted, 1);
    EXPECT_EQ(slots[0], -1);
    set.batch({20, 21, 22, 23, 24, 25, 26});
    EXPECT_EQ(set.has(0), policy == CachePolicy::kComing);
    set.batch({30, 31, 32, 33, 34, 35, 36, 37});
    EXPECT_FALSE(set.has(0)) << "where no other is left";
  }
}

}  // namespace
}  // namespace weft::kernels::test
