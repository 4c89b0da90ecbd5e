#include "weft/base/thread_pool.h"

#include <atomic>
#include <chrono>
#include <cstddef>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"

namespace weft {
namespace {

class Pool : public ::testing::TestWithParam<int> {};

TEST_P(Pool, RunsEveryIndexOnce) {
  ThreadPool pool(GetParam());
  EXPECT_EQ(pool.threads(), GetParam());
  for (const std::int64_t count : {0, 1, 2, 3, 7, 100, 1000}) {
    std::vector<int> runs(static_cast<std::size_t>(count), 0);
    pool.parallel_for(count, [&](std::int64_t i) { ++runs[static_cast<std::size_t>(i)]; });
    EXPECT_EQ(runs, std::vector<int>(static_cast<std::size_t>(count), 1));
  }
}

TEST_P(Pool, RethrowsTheLowestFailingIndexAfterAllHaveEnded) {
  ThreadPool pool(GetParam());
  for (int repeat = 0; repeat < 20; ++repeat) {
    std::atomic<int> ended = 0;
    try {
      pool.parallel_for(50, [&](std::int64_t i) {
        ++ended;
        if (i % 10 == 3) {
          throw std::runtime_error(std::to_string(i));
        }
      });
      FAIL();
    } catch (const std::runtime_error& error) {
      EXPECT_STREQ(error.what(), "3");
    }
    EXPECT_EQ(ended, 50);
  }
  int ran = 0;
  pool.parallel_for(1, [&](std::int64_t) { ++ran; });
  EXPECT_EQ(ran, 1) << "the pool still works after an exception";
}

TEST_P(Pool, NestedCallsRunInline) {
  ThreadPool pool(GetParam());
  std::atomic<int> inner = 0;
  std::atomic<int> elsewhere = 0;
  pool.parallel_for(8, [&](std::int64_t) {
    const std::thread::id self = std::this_thread::get_id();
    pool.parallel_for(5, [&](std::int64_t) {
      ++inner;
      elsewhere += std::this_thread::get_id() == self ? 0 : 1;
    });
  });
  EXPECT_EQ(inner, 40);
  EXPECT_EQ(elsewhere, 0);
}

TEST_P(Pool, PoolsInsidePools) {
  ThreadPool outer(GetParam());
  ThreadPool inner(2);
  std::atomic<int> ran = 0;
  outer.parallel_for(4, [&](std::int64_t) {
    inner.parallel_for(3,
                       [&](std::int64_t) { outer.parallel_for(2, [&](std::int64_t) { ++ran; }); });
  });
  EXPECT_EQ(ran, 24);
}

TEST_P(Pool, SeveralCallersAtOnce) {
  ThreadPool pool(GetParam());
  std::vector<std::int64_t> sums(4, 0);
  std::vector<std::thread> callers;
  for (std::size_t c = 0; c < sums.size(); ++c) {
    callers.emplace_back([&, c] {
      for (int repeat = 0; repeat < 100; ++repeat) {
        std::vector<std::int64_t> terms(17, 0);
        pool.parallel_for(17, [&](std::int64_t i) { terms[static_cast<std::size_t>(i)] = i; });
        for (const std::int64_t term : terms) {
          sums[c] += term;
        }
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(sums, std::vector<std::int64_t>(4, 100 * 136));
}

TEST_P(Pool, FailuresStayWithTheirCaller) {
  ThreadPool pool(GetParam());
  std::atomic<int> caught = 0;
  std::vector<std::thread> callers;
  for (int c = 0; c < 3; ++c) {
    callers.emplace_back([&, c] {
      for (int repeat = 0; repeat < 30; ++repeat) {
        try {
          pool.parallel_for(9, [&](std::int64_t i) {
            if (c == 1 && i >= 4) {
              throw std::runtime_error(std::to_string(i));
            }
          });
        } catch (const std::runtime_error& error) {
          caught += std::string(error.what()) == "4" && c == 1 ? 1 : 100;
        }
      }
    });
  }
  for (std::thread& caller : callers) {
    caller.join();
  }
  EXPECT_EQ(caught, 30);
}

INSTANTIATE_TEST_SUITE_P(Threads, Pool, ::testing::Values(1, 2, 4));

// Two tasks that wait for each other end only if two threads run them.
TEST(ThreadPool, TasksRunAtTheSameTime) {
  ThreadPool pool(2);
  std::atomic<int> arrived = 0;
  pool.parallel_for(2, [&](std::int64_t) {
    ++arrived;
    while (arrived < 2) {
      std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
  });
  EXPECT_EQ(arrived, 2);
}

TEST(ThreadPool, NeedsAThread) {
  EXPECT_THROW(ThreadPool(0), Error);
}

}  // namespace
}  // namespace weft
