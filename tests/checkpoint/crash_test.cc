// Saves and removals on a disk that fails and forgets: whatever happens, between any two calls, the
// newest complete checkpoint is found, all of it, and the job can go on.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/crash_kit.h"

namespace weft::checkpoint {
namespace {

TEST(Crash, BetweenAnyTwoCallsTheNewestCompleteCheckpointIsFound) {
  const auto calls = calls_of(block_job);
  const auto count = static_cast<std::int64_t>(calls.size());
  EXPECT_GT(count, 60);
  EXPECT_EQ(faults_of_kills({.end = count + 1}), std::vector<std::string>{});
}

TEST(Crash, AlsoWithoutAnAtomicExchange) {
  const auto calls = calls_of(block_job);
  const auto count = static_cast<std::int64_t>(calls.size());
  EXPECT_EQ(faults_of_kills({.end = count + 1, .stride = 5, .options = {.has_exchange = false}}),
            std::vector<std::string>{});
  for (const Call& call : calls) {
    EXPECT_NE(call.kind, CallKind::kExchange) << "a step is never replaced in its place";
  }
}

/// Where `lock.held` is the lock it outlives its holder: the next one sees that it is gone, takes
/// the folder over, and finds what it would find anywhere.
TEST(Crash, AlsoWithoutLocks) {
  const FaultyFileSystem::Options options{.has_exchange = false, .has_locks = false};
  const auto calls = calls_of(block_job, 2, options);
  const auto count = static_cast<std::int64_t>(calls.size());
  const auto linked = std::find_if(calls.begin(), calls.end(),
                                   [](const Call& call) { return call.kind == CallKind::kLink; });
  ASSERT_NE(linked, calls.end());
  // While the lock is taken and released, at every call; between that at every fifth.
  const std::int64_t taken = linked->index + 3;
  const std::int64_t released = count - 5;
  std::int64_t locked = 0;
  for (const Kills& kills :
       {Kills{.end = taken, .options = options, .locked = &locked},
        Kills{.begin = taken, .end = released, .stride = 5, .options = options, .locked = &locked},
        Kills{.begin = released, .end = count + 1, .options = options, .locked = &locked}}) {
    EXPECT_EQ(faults_of_kills(kills), std::vector<std::string>{});
  }
  EXPECT_GT(locked, count / 5) << "most kills leave the lock to be taken over";
}

/// Negative control: the crashes above find every sync that is left out.
TEST(Crash, WithoutAnyOneSyncSomethingIsLost) {
  EXPECT_EQ(leave_out_every_sync(block_job), 9)
      << "a rank's file, a blob, manifest, directory; next; parent, four times";
}

/// Negative control: a protocol that removes the old before the new is complete is found.
TEST(Crash, RemovalBeforeTheCommitIsFound) {
  const auto calls = calls_of(block_job);
  std::int64_t commit = 0;
  for (const Call& call : calls) {
    if (commit == 0 && call.kind == CallKind::kRename && call.path.ends_with(".tmp")) {
      commit = call.index;
    }
  }
  ASSERT_GT(commit, 0);
  FaultyFileSystem files;
  begin_job(files, block_job);
  const io::Hook killed = killed_at(commit);
  files.set_hook([&](const Call& call) {
    if (call.index == commit) {
      for (const char* old : {"step-00000010", "step-00000020"}) {
        EXPECT_FALSE(io::remove_all(files, fmt::format("{}/{}", kFolder, old)));
      }
    }
    return killed(call);
  });
  const int done = go_back_and_on(files, block_job);
  files.set_hook({});
  files.crash(Survival::kAll);
  EXPECT_NE(find_fault(files, block_job, done).find("there is no checkpoint"), std::string::npos);
}

TEST(Faults, EveryCallFailsInTurnAndTheJobGoesOn) {
  EXPECT_GT(fail_every_call(block_job), 40);
}

TEST(Faults, AnOldCheckpointThatCannotBeRemovedEndsNothing) {
  FaultyFileSystem files;
  begin_job(files, block_job);
  files.set_hook([](const Call& call) {
    const bool removes =
        call.kind == CallKind::kRename && !call.path.ends_with(".tmp") && call.to.ends_with(".tmp");
    return removes ? Verdict{What::kFail, EACCES} : Verdict{};
  });
  EXPECT_EQ(go_back_and_on(files, block_job), 4);
  EXPECT_EQ(list_checkpoints(kFolder, files).size(), 4U) << "10, 20, 20.2, 30";
  files.set_hook({});
  EXPECT_EQ(find_fault(files, block_job, 4), "");
  EXPECT_EQ(list_checkpoints(kFolder, files).size(), 2U) << "the next save tries again";
}

/// What an earlier version leaves where it cannot exchange two directories at once: after its first
/// rename, and after its second one has failed.
TEST(Interrupted, ExchangeOfAnEarlierVersionIsFoundAndMended) {
  for (const bool has_new : {true, false}) {
    FaultyFileSystem files;
    begin_job(files, block_job);
    const std::string step = fmt::format("{}/step-00000020", kFolder);
    if (has_new) {
      Folder folder(folder_of(files));
      folder.resume_job(kFolder);
      save_number(files, folder, *block_job(), 3, {30, 2});
    }
    ASSERT_FALSE(files.rename(step, step + ".tmp.old"));
    if (has_new) {
      ASSERT_FALSE(files.rename(fmt::format("{}/step-00000030", kFolder), step + ".tmp"));
      ASSERT_FALSE(io::write_file(files, fmt::format("{}/latest", kFolder), "step-00000020\n"));
    }
    EXPECT_EQ(number_of(files, find_checkpoint(kFolder, files)), has_new ? 3 : 2);
    Folder folder(folder_of(files));
    folder.resume_job(kFolder);
    save_number(files, folder, *block_job(), 4, {40, 2});
    EXPECT_EQ(number_of(files, step), has_new ? 3 : 2);
    EXPECT_EQ(number_of(files, kFolder), 4);
    EXPECT_EQ(files.status(step + ".tmp.old").kind, io::Kind::kMissing);
    EXPECT_EQ(files.status(step + ".tmp").kind, io::Kind::kMissing);
  }
}

}  // namespace
}  // namespace weft::checkpoint
