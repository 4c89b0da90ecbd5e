/// Ranks that do long work of their own, and ranks that never come back from it.
#include "weft/comm/work_watch.h"

#include <atomic>
#include <chrono>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/comm/local/local.h"

namespace weft::comm {
namespace {

using std::chrono::milliseconds;

TEST(WorkProgress, SaysWhatWhereAndHowMuch) {
  WorkProgress progress;
  EXPECT_EQ(progress.text(), "working");
  progress.begin({.activity = "writing", .place = "'a'", .total = 40 << 20});
  progress.add(12 << 20);
  EXPECT_EQ(progress.text(), "writing 'a', 12.0 MiB of 40.0 MiB");
  const std::uint64_t moves = progress.moves();
  progress.go_to("'b'");
  progress.move();
  EXPECT_EQ(progress.moves(), moves + 2);
  EXPECT_EQ(progress.text(), "writing 'b', 12.0 MiB of 40.0 MiB");
  progress.begin({.activity = "skipping samples of",
                  .place = "criteo x",
                  .total = -1,
                  .unit = WorkProgress::Unit::kSamples,
                  .done = 65536});
  EXPECT_EQ(progress.text(), "skipping samples of criteo x, 65,536 samples");
}

TEST(WorkWatch, OthersWaitForWorkThatMoves) {
  std::atomic<bool> worked = false;
  run_local(3, {.timeout_s = 1.0}, [&](Communicator& world) {
    Context ctx;
    if (world.rank() == 1) {
      WorkProgress progress;
      WorkWatch watch(world, progress);
      for (int i = 0; i < 50; ++i) {
        std::this_thread::sleep_for(milliseconds(50));
        progress.move();
        watch.look();
      }
      worked = true;
    }
    // Rank 0 waits for rank 2, which waits for rank 1.
    const auto last = world.split(world.rank() == 0 ? -1 : 0, 0, "last two");
    if (last) {
      last->barrier(ctx);
    }
    world.barrier(ctx);
    EXPECT_TRUE(worked);
  });
}

TEST(WorkWatch, WorkThatDoesNotMoveIsGivenUp) {
  WorkProgress progress;
  progress.begin({.activity = "reading", .place = "'a'", .total = 8});
  std::vector<std::string> seen(2);
  EXPECT_THROW(run_local(2, {.timeout_s = 0.3},
                         [&](Communicator& world) {
                           Context ctx;
                           try {
                             if (world.rank() == 1) {
                               WorkWatch watch(world, progress);
                               for (;;) {
                                 std::this_thread::sleep_for(milliseconds(10));
                                 watch.look();
                               }
                             }
                             for (;;) {  // comes before this rank's own patience ends
                               world.check();
                               std::this_thread::sleep_for(milliseconds(1));
                             }
                           } catch (const Error& error) {
                             EXPECT_EQ(error.code(), ErrorCode::kTimeout);
                             EXPECT_EQ(error.origin_rank(), 1);
                             seen[static_cast<std::size_t>(world.rank())] = error.what();
                             throw;
                           }
                         }),
               Error);
  EXPECT_NE(
      seen[0].find("rank 1 has been reading 'a' and nothing has moved for 0.3 s, at 0 B of 8 B"),
      std::string::npos)
      << seen[0];
  EXPECT_EQ(seen[0], seen[1]);
}

TEST(WorkWatch, LogsAndIsPartOfTheActivity) {
  std::mutex mutex;
  std::string logged;
  set_log_sink([&](LogLevel, std::string_view text) {
    const std::lock_guard lock(mutex);
    logged += text;
  });
  const auto activity = std::make_shared<ActivityLog>();
  run_local(1, {.activity = activity}, [&](Communicator& world) {
    WorkProgress progress;
    progress.begin({.activity = "writing", .place = "'a'", .total = 40});
    {
      WorkWatch watch(world, progress, {.note_every = milliseconds(1)});
      std::this_thread::sleep_for(milliseconds(5));
      watch.look();
      EXPECT_EQ(activity->describe().find("rank 0: writing 'a', 0 B of 40 B for "), 0U)
          << activity->describe();
    }
    EXPECT_EQ(activity->describe(), "no collective under way");
  });
  set_log_sink({});
  EXPECT_NE(logged.find("rank 0 has been writing 'a' for 0 s, 0 B of 40 B"), std::string::npos)
      << logged;
}

TEST(LocalFailure, ARankThatNeverEndsIsGivenUp) {
  std::promise<void> release;
  std::vector<int> given_up;
  std::string said;
  const auto give_up = [&](const Error& error, std::span<const int> ranks, double seconds) {
    said = error.what();
    given_up.assign(ranks.begin(), ranks.end());
    EXPECT_EQ(seconds, 0.2);
    release.set_value();
  };
  EXPECT_THROW(run_local(3, {.timeout_s = 60, .shutdown_timeout_s = 0.2, .give_up = give_up},
                         [&](Communicator& world) {
                           Context ctx;
                           if (world.rank() == 2) {
                             release.get_future().wait();
                           }
                           if (world.rank() == 0) {
                             fail(ErrorCode::kData, "file day_3 is cut");
                           }
                           world.barrier(ctx);
                         }),
               Error);
  EXPECT_EQ(given_up, std::vector<int>{2});
  EXPECT_EQ(said, "file day_3 is cut");
}

}  // namespace
}  // namespace weft::comm
