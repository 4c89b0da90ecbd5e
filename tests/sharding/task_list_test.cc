// Many small tasks by runs, which of many numbers there are, and lists of blocks by slot.
#include "weft/sharding/task_list.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdint>
#include <iterator>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"
#include "weft/base/parts.h"
#include "weft/base/philox.h"
#include "weft/base/thread_pool.h"
#include "weft/sharding/incoming_ids.h"
#include "weft/sharding/present_set.h"

namespace weft::sharding {
namespace {

std::uint64_t random_bits(std::uint64_t key, std::int64_t i) {
  const auto random = philox(key, static_cast<std::uint64_t>(i), 0);
  return random[0] | std::uint64_t{random[1]} << 32;
}

TEST(TaskList, RunsEveryTaskOnce) {
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    for (const std::int64_t jobs : {0, 1, 3, 255, 256, 257, 1000, 5000}) {
      TaskList list;
      std::vector<std::vector<std::atomic<int>>> runs;
      for (std::int64_t job = 0; job < jobs; ++job) {
        // Most have one task, some none, also first and last, and some several.
        const std::uint64_t kind = job == 0 || job + 1 == jobs ? 0 : random_bits(1, job) % 8;
        const std::int64_t tasks = kind == 0 ? 0 : kind == 1 ? 5 : 1;
        const std::int64_t before = list.total();
        EXPECT_EQ(list.add(tasks), before);
        runs.emplace_back(at(tasks));
      }
      list.run(pool, [&](std::int64_t job, std::int64_t task) { ++runs[at(job)][at(task)]; });
      for (const std::vector<std::atomic<int>>& of_job : runs) {
        for (const std::atomic<int>& times : of_job) {
          EXPECT_EQ(times, 1) << jobs << " jobs";
        }
      }
    }
  }
}

TEST(PresentSet, CountsBits) {
  EXPECT_EQ(count_bits(0), 0);
  EXPECT_EQ(count_bits(~std::uint64_t{0}), 64);
  for (std::int64_t i = 0; i < 4096; ++i) {
    const std::uint64_t bits =
        random_bits(2, i) & (i % 2 == 0 ? ~std::uint64_t{0} : random_bits(3, i));
    EXPECT_EQ(count_bits(bits), std::popcount(bits));
    EXPECT_EQ(count_bits(std::uint64_t{1} << i % 64), 1);
  }
}

TEST(PresentSet, HasThePlacesOfAList) {
  for (const std::int64_t size : {1, 63, 64, 65, 1000, 4099}) {
    PresentSet set;
    std::vector<std::int64_t> list;
    set.begin(size);
    for (std::int64_t i = 0; i < size; ++i) {
      if (random_bits(4, i) % 5 == 0) {
        set.insert(i);
        list.push_back(i);
      }
    }
    ASSERT_EQ(set.count(), std::ssize(list));
    for (std::int64_t place = 0; place < std::ssize(list); ++place) {
      EXPECT_TRUE(set.has(list[at(place)]));
      EXPECT_EQ(set.place(list[at(place)]), place);
    }
    for (const Range numbers : {Range{0, size}, Range{size / 3, size}, Range{size / 5, size / 2}}) {
      auto next = std::lower_bound(list.begin(), list.end(), numbers.begin);
      set.for_each(numbers, [&](std::int64_t number, std::int64_t place) {
        ASSERT_NE(next, list.end());
        EXPECT_EQ(number, *next);
        EXPECT_EQ(place, next++ - list.begin());
      });
      EXPECT_EQ(next, std::lower_bound(list.begin(), list.end(), numbers.end));
    }
  }
}

/// Numbers of several owners, each of whole words: each owner's are counted from 0 and moved.
TEST(PresentSet, CountsWordsByThemselves) {
  constexpr std::int64_t kOwners = 3, kSize = 2 * PresentSet::kWord;
  PresentSet once, moved;
  once.begin(kOwners * kSize);
  moved.begin(kOwners * kSize);
  for (std::int64_t i = 0; i < kOwners * kSize; ++i) {
    if (random_bits(5, i) % 3 == 0) {
      once.insert(i);
      moved.insert(i);
    }
  }
  const std::int64_t all = once.count();
  std::int64_t before = 0;
  for (std::int64_t owner = 0; owner < kOwners; ++owner) {
    const Range words = PresentSet::words_of({owner * kSize, (owner + 1) * kSize - 1});
    EXPECT_EQ(words.size(), 2);
    const std::int64_t count = moved.count(words, 0);
    moved.move(words, before);
    before += count;
  }
  EXPECT_EQ(before, all);
  for (std::int64_t i = 0; i < kOwners * kSize; ++i) {
    EXPECT_EQ(moved.place(i), once.place(i));
  }
}

TEST(IncomingBlocks, LieBySlotThenSource) {
  constexpr std::int64_t kSlots = 5, kSources = 70;
  IncomingBlocks blocks;
  for (std::uint64_t batch = 0; batch < 3; ++batch) {  // memory of the one before is reused
    const auto is_there = [&](std::int64_t slot, std::int64_t source) {
      return slot != 3 && random_bits(10 + batch, slot * kSources + source) % 4 == 0;
    };
    blocks.begin(kSlots);
    std::int64_t count = 0;
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      for (std::int64_t source = 0; source < kSources; ++source) {
        if (is_there(slot, source)) {
          blocks.expect(slot);
          ++count;
        }
      }
    }
    blocks.make();
    ASSERT_EQ(blocks.size(), count);
    for (std::int64_t source = 0; source < kSources; ++source) {
      for (std::int64_t slot = 0; slot < kSlots; ++slot) {
        if (is_there(slot, source)) {
          const std::int64_t place = blocks.add(slot, source);
          blocks.at_place(place).num_ids = slot * kSources + source;
        }
      }
    }
    std::int64_t next = 0;
    for (std::int64_t slot = 0; slot < kSlots; ++slot) {
      for (std::int64_t source = 0; source < kSources; ++source) {
        const std::int64_t place = blocks.place(slot, source);
        EXPECT_EQ(place, is_there(slot, source) ? next : IncomingBlocks::kNowhere);
        EXPECT_EQ(blocks.of(slot, source).num_ids,
                  is_there(slot, source) ? slot * kSources + source : 0);
        next += is_there(slot, source) ? 1 : 0;
      }
      std::int64_t before = -1;
      blocks.for_slot(slot, [&](std::int64_t source, std::int64_t place) {
        EXPECT_GT(source, before);
        EXPECT_EQ(place, blocks.place(slot, source));
        before = source;
      });
    }
  }
}

}  // namespace
}  // namespace weft::sharding
