// Saves and removals on a disk that fails and forgets: whatever happens, between any two calls, the
// newest complete checkpoint is found, all of it, and the job can go on.
#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/memory_state.h"
#include "tests/io/faulty_file_system.h"
#include "weft/checkpoint/step_names.h"
#include "weft/io/process.h"

namespace weft::checkpoint {
namespace {

using io::Call;
using io::CallKind;
using io::FaultyFileSystem;
using io::Survival;
using io::Verdict;
using What = io::Verdict::What;

constexpr const char* kFolder = "/run/ck";

std::vector<Matrix> few_matrices() {
  return {{"tables.a", "weight", DType::kFloat32, 5, 6}, {"dense.0", "sum", DType::kFloat64, 2, 2}};
}

/// Saves number 1, 2, ... in the order in which a test makes them; the number is in the manifest.
void save_number(
    FaultyFileSystem& files, Folder& folder, int number, std::int64_t step, std::int64_t keep = 2) {
  SaveOptions options = save_options(kFolder, step);
  options.metadata.config_yaml = std::to_string(number);
  options.keep = keep;
  options.folder = &folder;
  options.files = &files;
  save_all(options, few_matrices(), 1, 1);
}

int number_of(FaultyFileSystem& files, const std::string& directory) {
  return std::stoi(read_manifest(directory, files).metadata.config_yaml);
}

FolderOptions folder_of(FaultyFileSystem& files, double timeout_s = 1e6) {
  return {.directory = kFolder, .timeout_s = timeout_s, .files = &files};
}

/// What is there before the faults: 10 and 20, of one line.
void begin_job(FaultyFileSystem& files) {
  Folder folder(folder_of(files));
  folder.start_job();
  save_number(files, folder, 1, 10);
  save_number(files, folder, 2, 20);
}

/// Under faults: the job goes back to step 10 and makes step 20 anew, which takes another name and
/// removes the one that is left behind; then step 30, which removes step 10. Every save replaces
/// something. Returns the number of the last save that has returned.
int go_back_and_on(FaultyFileSystem& files, std::int64_t keep = 2) {
  int done = 2;
  try {
    Folder folder(folder_of(files));
    folder.resume_job(fmt::format("{}/step-00000010", kFolder));
    save_number(files, folder, 3, 20, keep);
    done = 3;
    save_number(files, folder, 4, 30, keep);
    done = 4;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << error.what();
  }
  return done;
}

/// What is wrong with the directory, where `done` was the last save that returned: empty if
/// nothing.
std::string find_fault(FaultyFileSystem& files, int done) {
  try {
    int last = 0;
    for (const std::string& name : files.list(kFolder).names) {
      if (!parse_step_name(name)) {
        continue;
      }
      const std::string directory = fmt::format("{}/{}", kFolder, name);
      LoadOptions options{.path = directory};
      options.files = &files;
      if (load_all(options, few_matrices(), 2, 1) != 0) {
        return name + " has other bytes";
      }
      for (const Blob& blob : save_options("", 0).blobs) {
        read_blob(directory, blob.name, files);
      }
      last = std::max(last, number_of(files, directory));
    }
    const int newest = number_of(files, find_checkpoint(kFolder, files));
    if (newest < done || newest != last) {
      return fmt::format("save {} is taken for the newest, {} is there and {} has returned", newest,
                         last, done);
    }
    // The job goes on: what was left unfinished goes. It waits only for a lock whose file was torn
    // and no longer says who has it.
    Folder folder(folder_of(files, 0.05));
    folder.resume_job(kFolder);
    save_number(files, folder, 9, 40);
    if (number_of(files, find_checkpoint(kFolder, files)) != 9) {
      return "the save after it is not the newest";
    }
    for (const std::string& name : files.list(kFolder).names) {
      if (!parse_step_name(name) && name != "latest" && !name.starts_with("lock")) {
        return name + " is left over";
      }
    }
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

/// From call `at` on nothing is done any more: the process is killed there.
io::Hook killed_at(std::int64_t at) {
  return [at](const Call& call) { return call.index < at ? Verdict{} : Verdict{What::kFail, EIO}; };
}

/// Where a file is the lock: its holder has ended. The test's own process stands for it and goes
/// on, so the file says that it began at another time. Returns whether there is such a file.
bool end_holder(FaultyFileSystem& files) {
  const std::string path = fmt::format("{}/lock.held", kFolder);
  std::string text;
  if (io::read_file(files, path, 1 << 20, text)) {
    return false;
  }
  const std::int64_t start = io::this_process().start;
  const std::string own = fmt::format("start {}", start);
  if (const std::size_t begin = text.find(own); begin != std::string::npos) {
    text.replace(begin, own.size(), fmt::format("start {}", start - 1));
  }
  EXPECT_FALSE(io::write_file(files, path, text));
  return true;
}

std::vector<Call> calls_of(const std::function<void(FaultyFileSystem&)>& job,
                           const FaultyFileSystem::Options& options = {}) {
  FaultyFileSystem files(options);
  begin_job(files);
  files.set_hook([](const Call&) { return Verdict{}; });
  job(files);
  return files.calls();
}

struct Kills {
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t stride = 1;
  std::int64_t keep = 2;
  std::size_t enough = 5;  ///< faults
  FaultyFileSystem::Options options = {};
  io::Hook too = {};               ///< asked about calls before the kill
  std::int64_t* locked = nullptr;  ///< counts the kills that have left a file that is the lock
};

/// The faults that are found when the process is killed at each call in [begin, end), and the
/// machine with it.
std::vector<std::string> faults_of_kills(const Kills& kills) {
  constexpr std::uint32_t kSeeds = 4;
  std::vector<std::string> faults;
  for (std::int64_t at = kills.begin; at < kills.end && faults.size() < kills.enough;
       at += kills.stride) {
    for (std::uint32_t seed = 0; seed < kSeeds + 2 && faults.size() < kills.enough; ++seed) {
      FaultyFileSystem files(kills.options);
      begin_job(files);
      const io::Hook killed = killed_at(at);
      files.set_hook([&](const Call& call) {
        const Verdict verdict = killed(call);
        return verdict.what == What::kDo && kills.too ? kills.too(call) : verdict;
      });
      const int done = go_back_and_on(files, kills.keep);
      files.set_hook({});
      const Survival survival = seed < kSeeds    ? Survival::kSome
                                : seed == kSeeds ? Survival::kNothing
                                                 : Survival::kAll;
      files.crash(survival, seed * 1000 + static_cast<std::uint32_t>(at));
      const bool was_locked = end_holder(files);
      if (kills.locked != nullptr) {
        *kills.locked += was_locked ? 1 : 0;
      }
      if (const std::string fault = find_fault(files, done); !fault.empty()) {
        faults.push_back(fmt::format("killed at call {}, seed {}: {}", at, seed, fault));
      }
    }
  }
  return faults;
}

TEST(Crash, BetweenAnyTwoCallsTheNewestCompleteCheckpointIsFound) {
  const auto calls = calls_of([](FaultyFileSystem& files) { EXPECT_EQ(go_back_and_on(files), 4); });
  const auto count = static_cast<std::int64_t>(calls.size());
  EXPECT_GT(count, 60);
  EXPECT_EQ(faults_of_kills({.end = count + 1}), std::vector<std::string>{});
}

TEST(Crash, AlsoWithoutAnAtomicExchange) {
  const auto calls = calls_of([](FaultyFileSystem& files) { go_back_and_on(files); });
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
  const auto calls =
      calls_of([](FaultyFileSystem& files) { EXPECT_EQ(go_back_and_on(files), 4); }, options);
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
  const auto calls = calls_of([](FaultyFileSystem& files) { go_back_and_on(files); });
  const auto count = static_cast<std::int64_t>(calls.size());
  int syncs = 0;
  int saves = 0;
  for (const Call& call : calls) {
    saves += call.kind == CallKind::kMakeDirectory ? 1 : 0;
    const bool is_sync = call.kind == CallKind::kSync || call.kind == CallKind::kSyncDirectory;
    // Those of the first of the two saves, since the last of the second guards the one after it; an
    // empty file has nothing to lose.
    if (!is_sync || saves != 1 || call.path.ends_with("blob-empty")) {
      continue;
    }
    ++syncs;
    std::size_t found = 0;
    for (const std::int64_t keep : {2, 0}) {  // a removal syncs too, and hides what was left out
      const auto left_out = [&](const Call& now) {
        return now.index == call.index ? Verdict{What::kIgnore} : Verdict{};
      };
      found += found > 0 ? 0
                         : faults_of_kills({.begin = call.index,
                                            .end = count + 1,
                                            .keep = keep,
                                            .enough = 1,
                                            .too = left_out})
                               .size();
    }
    EXPECT_EQ(found, 1U) << "the sync of " << call.path << ", call " << call.index;
  }
  EXPECT_EQ(syncs, 9) << "a rank's file, a blob, manifest, directory; next; parent, four times";
}

/// Negative control: a protocol that removes the old before the new is complete is found.
TEST(Crash, RemovalBeforeTheCommitIsFound) {
  const auto calls = calls_of([](FaultyFileSystem& files) { go_back_and_on(files); });
  std::int64_t commit = 0;
  for (const Call& call : calls) {
    if (commit == 0 && call.kind == CallKind::kRename && call.path.ends_with(".tmp")) {
      commit = call.index;
    }
  }
  ASSERT_GT(commit, 0);
  FaultyFileSystem files;
  begin_job(files);
  const io::Hook killed = killed_at(commit);
  files.set_hook([&](const Call& call) {
    if (call.index == commit) {
      for (const char* old : {"step-00000010", "step-00000020"}) {
        EXPECT_FALSE(io::remove_all(files, fmt::format("{}/{}", kFolder, old)));
      }
    }
    return killed(call);
  });
  const int done = go_back_and_on(files);
  files.set_hook({});
  files.crash(Survival::kAll);
  EXPECT_NE(find_fault(files, done).find("there is no checkpoint"), std::string::npos);
}

/// Every call fails once; the job takes note, and saves again with the same hold on the folder.
TEST(Faults, EveryCallFailsInTurnAndTheJobGoesOn) {
  const auto calls = calls_of([](FaultyFileSystem& files) { go_back_and_on(files); });
  int refused = 0;
  for (const Call& failing : calls) {
    for (const What what : {What::kFail, What::kTorn, What::kShort}) {
      if (what != What::kFail && failing.kind != CallKind::kWrite) {
        continue;
      }
      FaultyFileSystem files;
      begin_job(files);
      bool failed = false;
      files.set_hook([&](const Call& call) {
        const bool now = !failed && call.index == failing.index;
        failed = failed || now;
        return now ? Verdict{what, ENOSPC} : Verdict{};
      });
      const std::string where = fmt::format("call {} of kind {} on {}", failing.index,
                                            static_cast<int>(failing.kind), failing.path);
      std::optional<Folder> folder;
      int done = 2;
      int number = 2;
      const auto attempt = [&](const std::function<void()>& work) {
        try {
          work();
          return true;
        } catch (const Error& error) {
          EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << where << ": " << error.what();
          ++refused;
          return false;
        }
      };
      const auto take = [&] {
        folder.emplace(folder_of(files));
        folder->resume_job(fmt::format("{}/step-00000010", kFolder));
      };
      if (!attempt(take)) {
        take();
      }
      for (const std::int64_t step : {20, 30, 40}) {
        ++number;
        if (attempt([&] { save_number(files, *folder, number, step); })) {
          done = number;
        }
        if (failed) {
          EXPECT_EQ(number_of(files, find_checkpoint(kFolder, files)), done) << where;
        }
      }
      EXPECT_GE(done, number - 1) << "it fails once: " << where;
      folder.reset();
      EXPECT_EQ(find_fault(files, done), "") << where;
    }
  }
  EXPECT_GT(refused, 40);
}

TEST(Faults, AnOldCheckpointThatCannotBeRemovedEndsNothing) {
  FaultyFileSystem files;
  begin_job(files);
  files.set_hook([](const Call& call) {
    const bool removes =
        call.kind == CallKind::kRename && !call.path.ends_with(".tmp") && call.to.ends_with(".tmp");
    return removes ? Verdict{What::kFail, EACCES} : Verdict{};
  });
  EXPECT_EQ(go_back_and_on(files), 4);
  EXPECT_EQ(list_checkpoints(kFolder, files).size(), 4U) << "10, 20, 20.2, 30";
  files.set_hook({});
  EXPECT_EQ(find_fault(files, 4), "");
  EXPECT_EQ(list_checkpoints(kFolder, files).size(), 2U) << "the next save tries again";
}

/// What an earlier version leaves where it cannot exchange two directories at once: after its first
/// rename, and after its second one has failed.
TEST(Interrupted, ExchangeOfAnEarlierVersionIsFoundAndMended) {
  for (const bool has_new : {true, false}) {
    FaultyFileSystem files;
    begin_job(files);
    const std::string step = fmt::format("{}/step-00000020", kFolder);
    if (has_new) {
      Folder folder(folder_of(files));
      folder.resume_job(kFolder);
      save_number(files, folder, 3, 30);
    }
    ASSERT_FALSE(files.rename(step, step + ".tmp.old"));
    if (has_new) {
      ASSERT_FALSE(files.rename(fmt::format("{}/step-00000030", kFolder), step + ".tmp"));
      ASSERT_FALSE(io::write_file(files, fmt::format("{}/latest", kFolder), "step-00000020\n"));
    }
    EXPECT_EQ(number_of(files, find_checkpoint(kFolder, files)), has_new ? 3 : 2);
    Folder folder(folder_of(files));
    folder.resume_job(kFolder);
    save_number(files, folder, 4, 40);
    EXPECT_EQ(number_of(files, step), has_new ? 3 : 2);
    EXPECT_EQ(number_of(files, kFolder), 4);
    EXPECT_EQ(files.status(step + ".tmp.old").kind, io::Kind::kMissing);
    EXPECT_EQ(files.status(step + ".tmp").kind, io::Kind::kMissing);
  }
}

}  // namespace
}  // namespace weft::checkpoint
