#include "weft/kernels/tasks.h"

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/base/thread_pool.h"

namespace weft::kernels {
namespace {

/// Jobs of 0 to 4 blocks; the first has none.
std::int64_t blocks_of(std::int64_t job) {
  return job * 7 % 11 % 5;
}

using Called = std::pair<std::int64_t, std::int64_t>;  // job, block

std::vector<Called> all_blocks(std::int64_t jobs) {
  std::vector<Called> all;
  for (std::int64_t job = 0; job < jobs; ++job) {
    for (std::int64_t block = 0; block < blocks_of(job); ++block) {
      all.emplace_back(job, block);
    }
  }
  return all;
}

/// Fewer blocks than ranges and many more, places of one job and of many; in order where one thread
/// runs them.
TEST(Tasks, EveryBlockOfEveryJobRunsOnce) {
  ThreadPool pool(3);
  for (const std::int64_t jobs : {0, 1, 2, 3, 63, 64, 65, 255, 256, 257, 300, 1000, 14000}) {
    const std::vector<Called> expected = all_blocks(jobs);
    Context ctx;
    std::vector<Called> called;
    run_blocks(ctx, jobs, blocks_of,
               [&](std::int64_t job, std::int64_t block) { called.emplace_back(job, block); });
    EXPECT_EQ(called, expected) << jobs;
    ctx.pool = &pool;
    std::vector<Called> places(expected.size());
    std::atomic<std::size_t> next = 0;
    run_blocks(ctx, jobs, blocks_of, [&](std::int64_t job, std::int64_t block) {
      places.at(next.fetch_add(1)) = {job, block};
    });
    EXPECT_EQ(next.load(), expected.size());
    std::sort(places.begin(), places.end());
    EXPECT_EQ(places, expected) << jobs;
  }
}

TEST(Tasks, RangesCoverAllOnce) {
  ThreadPool pool(2);
  for (const std::int64_t total :
       {std::int64_t{0}, std::int64_t{1}, kMostTaskRanges - 1, kMostTaskRanges, kMostTaskRanges + 1,
        10 * kMostTaskRanges + 7}) {
    for (ThreadPool* const on : {static_cast<ThreadPool*>(nullptr), &pool}) {
      std::vector<std::atomic<int>> times(at(total));
      std::atomic<std::int64_t> ranges = 0;
      run_ranges(on, total, [&](const Range& tasks) {
        ++ranges;
        EXPECT_FALSE(tasks.empty());
        for (std::int64_t i = tasks.begin; i < tasks.end; ++i) {
          ++times[at(i)];
        }
      });
      EXPECT_EQ(ranges.load(), std::min(total, kMostTaskRanges));
      EXPECT_TRUE(std::all_of(times.begin(), times.end(), [](const auto& n) { return n == 1; }));
    }
  }
}

/// The error of the first block that fails ends the call, also where blocks of other ranges fail.
TEST(Tasks, TheFirstFailureIsThrown) {
  ThreadPool pool(3);
  Context ctx;
  ctx.pool = &pool;
  try {
    run_blocks(
        ctx, 5000, [](std::int64_t /*job*/) { return std::int64_t{1}; },
        [](std::int64_t job, std::int64_t /*block*/) {
          if (job % 1000 == 999) {
            fail(ErrorCode::kInternal, "job {}", job);
          }
        });
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()), "job 999");
  }
}

}  // namespace
}  // namespace weft::kernels
