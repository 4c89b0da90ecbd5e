#include "weft/io/lock_file.h"

#include <chrono>
#include <filesystem>
#include <string>
#include <thread>

#include <fmt/core.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/io/faulty_file_system.h"

namespace weft::io {
namespace {

/// The process id of a child that has ended and was waited for.
std::int64_t ended_process() {
  const pid_t child = fork();
  if (child == 0) {
    _exit(0);
  }
  waitpid(child, nullptr, 0);
  return child;
}

/// A lock's file as another process would have left it.
std::string file_of(const ProcessName& p, int beat = 1) {
  return fmt::format(
      "host {}\nboot {}\nspace {}\npid {}\nstart {}\nlabel other\nbeat {}\nnonce 7\n", p.host,
      p.boot, p.space, p.pid, p.start, beat);
}

class LockFiles : public testing::TestWithParam<bool> {
 protected:
  FaultyFileSystem files_{{.has_locks = GetParam()}};
};

TEST_P(LockFiles, OneAtATimeAndTheOthersAreToldWho) {
  TakenLock first = LockFile::take(files_, {"/lock", 10});
  ASSERT_TRUE(first.lock);
  first.lock->set_label("job 12");
  EXPECT_TRUE(first.lock->is_held());
  const TakenLock second = LockFile::take(files_, {"/lock", 10});
  EXPECT_FALSE(second.lock);
  EXPECT_EQ(second.holder.label, "job 12");
  EXPECT_EQ(second.holder.process, this_process());
  first.lock.reset();
  EXPECT_TRUE(files_.list("/").names.empty()) << "nothing is left behind";
  EXPECT_TRUE(LockFile::take(files_, {"/lock", 10}).lock);
}

TEST_P(LockFiles, RemovedByAPersonItIsNoLongerHeld) {
  const TakenLock taken = LockFile::take(files_, {"/lock", 10});
  ASSERT_TRUE(taken.lock);
  ASSERT_FALSE(files_.remove(GetParam() ? "/lock" : "/lock.held"));
  EXPECT_FALSE(taken.lock->is_held());
}

TEST_P(LockFiles, WhatAKilledProcessHasLeftKeepsNobodyOut) {
  ProcessName gone = this_process();
  gone.pid = ended_process();
  ASSERT_FALSE(write_file(files_, "/lock", file_of(gone)));
  ASSERT_FALSE(write_file(files_, "/lock.held", file_of(gone)));
  // With a limit that no test reaches: it is seen to be gone.
  const TakenLock taken = LockFile::take(files_, {"/lock", 1e6});
  EXPECT_TRUE(taken.lock);
}

INSTANTIATE_TEST_SUITE_P(Locks, LockFiles, testing::Bool(), [](const auto& param_info) {
  return param_info.param ? "OfTheSystem" : "ByLink";
});

TEST(LockByLink, ANumberThatAnotherProcessHasNowIsNotTheHolder) {
  FaultyFileSystem files({.has_locks = false});
  ProcessName earlier = this_process();
  earlier.start -= 1;
  ASSERT_FALSE(write_file(files, "/lock.held", file_of(earlier)));
  EXPECT_TRUE(LockFile::take(files, {"/lock", 1e6}).lock);
}

TEST(LockByLink, AHolderElsewhereIsWaitedForAndReplacedWhenItStandsStill) {
  FaultyFileSystem files({.has_locks = false});
  const ProcessName elsewhere{"elsewhere", "b", "s", 5, 6};
  ASSERT_FALSE(write_file(files, "/lock.held", file_of(elsewhere)));
  TakenLock taken = LockFile::take(files, {"/lock", 0.1});
  ASSERT_TRUE(taken.lock);
  EXPECT_TRUE(taken.lock->is_held());
  taken.lock.reset();
  EXPECT_TRUE(files.list("/").names.empty());
}

TEST(LockByLink, AHolderElsewhereIsTakenToRunWhereNobodyMayWait) {
  FaultyFileSystem files({.has_locks = false});
  ASSERT_FALSE(write_file(files, "/lock.held", file_of({"elsewhere", "b", "s", 5, 6})));
  const TakenLock taken = LockFile::take(
      files, {.path = "/lock", .timeout_s = 1e6, .patience = Patience::kTakeItToRun});
  EXPECT_FALSE(taken.lock);
  EXPECT_EQ(taken.error, error_of(EAGAIN));
  EXPECT_EQ(files.list("/").names, std::vector<std::string>{"lock.held"});
  // One that is seen to be gone needs no wait.
  ProcessName gone = this_process();
  gone.pid = ended_process();
  ASSERT_FALSE(write_file(files, "/lock.held", file_of(gone)));
  EXPECT_TRUE(LockFile::take(files, {.path = "/lock", .patience = Patience::kTakeItToRun}).lock);
}

/// It neither spins nor takes the lock for free.
TEST(LockByLink, AFileThatCannotBeLookedAtIsAnError) {
  FaultyFileSystem files({.has_locks = false});
  ASSERT_FALSE(write_file(files, "/lock.held", file_of(this_process())));
  files.set_hook([](const Call& call) {
    return call.kind == CallKind::kStatus ? Verdict{.what = Verdict::What::kFail, .error = EIO}
                                          : Verdict{};
  });
  const TakenLock taken = LockFile::take(files, {"/lock", 10});
  EXPECT_FALSE(taken.lock);
  EXPECT_EQ(taken.error, error_of(EIO));
  files.set_hook({});
  EXPECT_EQ(files.list("/").names, std::vector<std::string>{"lock.held"});
}

TEST(LockByLink, AHolderElsewhereThatBeatsKeepsItsLock) {
  FaultyFileSystem files({.has_locks = false});
  const ProcessName elsewhere{"elsewhere", "b", "s", 5, 6};
  ASSERT_FALSE(write_file(files, "/lock.held", file_of(elsewhere)));
  std::atomic<bool> end = false;
  std::thread heart([&] {
    for (int beat = 2; !end; ++beat) {
      ASSERT_FALSE(write_file(files, "/lock.held", file_of(elsewhere, beat)));
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
  });
  const TakenLock taken = LockFile::take(files, {"/lock", 5});
  end = true;
  heart.join();
  EXPECT_FALSE(taken.lock);
  EXPECT_EQ(taken.holder.process, elsewhere);
  EXPECT_EQ(files.list("/").names, std::vector<std::string>{"lock.held"});
}

TEST(LockByLink, AHolderThatWasTakenOverKnows) {
  FaultyFileSystem files({.has_locks = false});
  const TakenLock slow = LockFile::take(files, {"/lock", 1e3});
  ASSERT_TRUE(slow.lock);
  // As another process does that has seen no beat for too long.
  ASSERT_FALSE(files.remove("/lock.held"));
  ASSERT_FALSE(write_file(files, "/lock.held", file_of({"elsewhere", "b", "s", 5, 6})));
  EXPECT_FALSE(slow.lock->is_held());
}

TEST(Process, KnowsItselfAndWhoIsGone) {
  ProcessName process = this_process();
  EXPECT_EQ(process.pid, getpid());
  EXPECT_EQ(presence_of(process), Presence::kRuns);
  process.pid = ended_process();
  EXPECT_EQ(presence_of(process), Presence::kGone);
  process.host += "2";
  EXPECT_EQ(presence_of(process), Presence::kUnknown);
  EXPECT_NE(random_id(), random_id());
}

}  // namespace
}  // namespace weft::io
