/// Jobs that save on a disk that fails and forgets: what they must find afterwards.
#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
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
using io::Call;
using io::CallKind;
using io::FaultyFileSystem;
using io::Survival;
using io::Verdict;
using What = io::Verdict::What;

inline constexpr const char* kFolder = "/run/ck";

/// The state of a job whose process or disk fails. Each save has a number, which is in the
/// manifest.
class CrashJob {
 public:
  CrashJob() = default;
  virtual ~CrashJob() = default;
  CrashJob(const CrashJob&) = delete;
  CrashJob& operator=(const CrashJob&) = delete;

  /// Goes on from a checkpoint.
  virtual void resume(FaultyFileSystem& files, const std::string& directory) = 0;

  /// Trains, and saves. The text of the configuration begins with the number.
  virtual void save(SaveOptions options, int number) = 0;

  /// What is wrong with a checkpoint: empty if nothing.
  virtual std::string fault_of(FaultyFileSystem& files, const std::string& directory) = 0;
};

/// Makes one with the values with which a job begins.
using MakeJob = std::function<std::unique_ptr<CrashJob>()>;

inline std::vector<Matrix> few_matrices() {
  return {{"tables.a", "weight", DType::kFloat32, 5, 6}, {"dense.0", "sum", DType::kFloat64, 2, 2}};
}

/// State in blocks, which is the same at every save.
class BlockJob final : public CrashJob {
 public:
  void resume(FaultyFileSystem& /*files*/, const std::string& /*directory*/) override {}

  void save(SaveOptions options, int number) override {
    options.metadata.config_yaml = std::to_string(number);
    save_all(options, few_matrices(), 1, 1);
  }

  std::string fault_of(FaultyFileSystem& files, const std::string& directory) override {
    LoadOptions options{.path = directory};
    options.files = &files;
    return load_all(options, few_matrices(), 2, 1) == 0 ? "" : "it has other bytes";
  }
};

inline std::unique_ptr<CrashJob> block_job() {
  return std::make_unique<BlockJob>();
}

/// Saves number 1, 2, ... in the order in which a test makes them.
inline void save_number(FaultyFileSystem& files,
                        Folder& folder,
                        CrashJob& job,
                        int number,
                        std::pair<std::int64_t, std::int64_t> step_and_keep) {
  SaveOptions options = save_options(kFolder, step_and_keep.first);
  options.keep = step_and_keep.second;
  options.folder = &folder;
  options.files = &files;
  job.save(std::move(options), number);
}

inline int number_of(FaultyFileSystem& files, const std::string& directory) {
  return std::stoi(read_manifest(directory, files).metadata.config_yaml);
}

inline FolderOptions folder_of(FaultyFileSystem& files, double timeout_s = 1e6) {
  return {.directory = kFolder, .timeout_s = timeout_s, .files = &files};
}

/// What is there before the faults: 10 and 20, of one line.
inline void begin_job(FaultyFileSystem& files, const MakeJob& make) {
  Folder folder(folder_of(files));
  folder.start_job();
  const auto job = make();
  save_number(files, folder, *job, 1, {10, 2});
  save_number(files, folder, *job, 2, {20, 2});
}

/// Under faults: the job goes back to step 10 and makes step 20 anew, which takes another name and
/// removes the one that is left behind; then step 30, which removes step 10. Every save replaces
/// something. Returns the number of the last save that has returned.
inline int go_back_and_on(FaultyFileSystem& files, const MakeJob& make, std::int64_t keep = 2) {
  int done = 2;
  try {
    const std::string from = fmt::format("{}/step-00000010", kFolder);
    Folder folder(folder_of(files));
    folder.resume_job(from);
    const auto job = make();
    job->resume(files, from);
    save_number(files, folder, *job, 3, {20, keep});
    done = 3;
    save_number(files, folder, *job, 4, {30, keep});
    done = 4;
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint) << error.what();
  }
  return done;
}

/// Segments that no manifest names.
inline std::string find_left_over_rows(FaultyFileSystem& files) {
  std::string named;
  for (const std::string& directory : list_checkpoints(kFolder, files)) {
    for (const SegmentSet& set : read_manifest(directory, files).segments) {
      named += set.prefix + " ";
    }
  }
  for (const std::string& name : files.list(fmt::format("{}/rows", kFolder)).names) {
    if (named.find(name.substr(0, name.size() - std::string("-0-0.rows").size())) ==
        std::string::npos) {
      return "rows/" + name + " is left over";
    }
  }
  return "";
}

/// What is wrong with the directory, where `done` was the last save that returned: empty if
/// nothing.
inline std::string find_fault(FaultyFileSystem& files, const MakeJob& make, int done) {
  try {
    int last = 0;
    for (const std::string& name : files.list(kFolder).names) {
      if (!parse_step_name(name)) {
        continue;
      }
      const std::string directory = fmt::format("{}/{}", kFolder, name);
      if (const std::string fault = make()->fault_of(files, directory); !fault.empty()) {
        return name + ": " + fault;
      }
      for (const Blob& blob : save_options("", 0).blobs) {
        read_blob(directory, blob.name, files);
      }
      last = std::max(last, number_of(files, directory));
    }
    const std::string found = find_checkpoint(kFolder, files);
    const int newest = number_of(files, found);
    if (newest < done || newest != last) {
      return fmt::format("save {} is taken for the newest, {} is there and {} has returned", newest,
                         last, done);
    }
    // The job goes on: what was left unfinished goes. It waits only for a lock whose file was torn
    // and no longer says who has it.
    Folder folder(folder_of(files, 0.05));
    folder.resume_job(kFolder);
    const auto job = make();
    job->resume(files, found);
    save_number(files, folder, *job, 9, {40, 2});
    if (number_of(files, find_checkpoint(kFolder, files)) != 9) {
      return "the save after it is not the newest";
    }
    if (const std::string fault = make()->fault_of(files, kFolder); !fault.empty()) {
      return "the save after it: " + fault;
    }
    for (const std::string& name : files.list(kFolder).names) {
      if (!parse_step_name(name) && name != "latest" && name != "rows" &&
          !name.starts_with("lock")) {
        return name + " is left over";
      }
    }
    return find_left_over_rows(files);
  } catch (const Error& error) {
    return error.what();
  }
}

/// From call `at` on nothing is done any more: the process is killed there.
inline io::Hook killed_at(std::int64_t at) {
  return [at](const Call& call) { return call.index < at ? Verdict{} : Verdict{What::kFail, EIO}; };
}

/// Where a file is the lock: its holder has ended. The test's own process stands for it and goes
/// on, so the file says that it began at another time. Returns whether there is such a file.
inline bool end_holder(FaultyFileSystem& files) {
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

/// The calls of go_back_and_on() without faults.
inline std::vector<Call> calls_of(const MakeJob& make,
                                  std::int64_t keep = 2,
                                  const FaultyFileSystem::Options& options = {}) {
  FaultyFileSystem files(options);
  begin_job(files, make);
  files.set_hook([](const Call&) { return Verdict{}; });
  EXPECT_EQ(go_back_and_on(files, make, keep), 4);
  return files.calls();
}

struct Kills {
  MakeJob make = block_job;
  std::int64_t begin = 0;
  std::int64_t end = 0;
  std::int64_t stride = 1;
  std::int64_t keep = 2;
  std::size_t enough = 5;   ///< faults
  std::uint32_t seeds = 4;  ///< of what survives, beside nothing and all
  FaultyFileSystem::Options options = {};
  io::Hook too = {};               ///< asked about calls before the kill
  std::int64_t* locked = nullptr;  ///< counts the kills that have left a file that is the lock
};

/// The faults that are found when the process is killed at each call in [begin, end), and the
/// machine with it.
inline std::vector<std::string> faults_of_kills(const Kills& kills) {
  std::vector<std::string> faults;
  for (std::int64_t at = kills.begin; at < kills.end && faults.size() < kills.enough;
       at += kills.stride) {
    for (std::uint32_t seed = 0; seed < kills.seeds + 2 && faults.size() < kills.enough; ++seed) {
      FaultyFileSystem files(kills.options);
      begin_job(files, kills.make);
      const io::Hook killed = killed_at(at);
      files.set_hook([&](const Call& call) {
        const Verdict verdict = killed(call);
        return verdict.what == What::kDo && kills.too ? kills.too(call) : verdict;
      });
      const int done = go_back_and_on(files, kills.make, kills.keep);
      files.set_hook({});
      const Survival survival = seed < kills.seeds    ? Survival::kSome
                                : seed == kills.seeds ? Survival::kNothing
                                                      : Survival::kAll;
      files.crash(survival, seed * 1000 + static_cast<std::uint32_t>(at));
      const bool was_locked = end_holder(files);
      if (kills.locked != nullptr) {
        *kills.locked += was_locked ? 1 : 0;
      }
      if (const std::string fault = find_fault(files, kills.make, done); !fault.empty()) {
        faults.push_back(fmt::format("killed at call {}, seed {}: {}", at, seed, fault));
      }
    }
  }
  return faults;
}

/// Every call fails once; the job takes note, and saves again with the same hold on the folder.
/// Returns how often it was refused something.
inline int fail_every_call(const MakeJob& make, std::int64_t stride = 1) {
  const auto calls = calls_of(make);
  int refused = 0;
  for (const Call& failing : calls) {
    if (failing.index % stride != 0) {
      continue;
    }
    for (const What what : {What::kFail, What::kTorn, What::kShort}) {
      if (what != What::kFail && failing.kind != CallKind::kWrite) {
        continue;
      }
      FaultyFileSystem files;
      begin_job(files, make);
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
      std::unique_ptr<CrashJob> job;
      const auto take = [&] {
        const std::string from = fmt::format("{}/step-00000010", kFolder);
        folder.reset();
        folder.emplace(folder_of(files));
        folder->resume_job(from);
        job = make();
        job->resume(files, from);
      };
      if (!attempt(take)) {
        take();
      }
      for (const std::int64_t step : {20, 30, 40}) {
        ++number;
        if (attempt([&] { save_number(files, *folder, *job, number, {step, 2}); })) {
          done = number;
        }
        if (failed) {
          EXPECT_EQ(number_of(files, find_checkpoint(kFolder, files)), done) << where;
        }
      }
      EXPECT_GE(done, number - 1) << "it fails once: " << where;
      folder.reset();
      EXPECT_EQ(find_fault(files, make, done), "") << where;
    }
  }
  return refused;
}

/// Leaves out each sync of a save below a path in turn; each must be missed. Returns how many there
/// are.
inline int leave_out_every_sync(const MakeJob& make, const std::string& below = kFolder) {
  const auto calls = calls_of(make);
  const auto count = static_cast<std::int64_t>(calls.size());
  int syncs = 0;
  int saves = 0;
  std::set<std::string> synced;  // segments
  for (const Call& call : calls) {
    saves += call.kind == CallKind::kMakeDirectory ? 1 : 0;
    const bool is_sync = call.kind == CallKind::kSync || call.kind == CallKind::kSyncDirectory;
    // Those of the first of the two saves, since the last of the second guards the one after it; an
    // empty file has nothing to lose, and a segment's second sync makes good for its first.
    if (!is_sync || saves != 1 || !call.path.starts_with(below) ||
        call.path.ends_with("blob-empty") ||
        ((call.path.ends_with(".rows") || call.path.ends_with(".seg")) &&
         synced.insert(call.path).second)) {
      continue;
    }
    ++syncs;
    std::size_t found = 0;
    for (const std::int64_t keep : {0, 2}) {  // a removal syncs too, and hides what was left out
      const auto left_out = [&](const Call& now) {
        return now.index == call.index ? Verdict{What::kIgnore} : Verdict{};
      };
      found += found > 0 ? 0
                         : faults_of_kills({.make = make,
                                            .begin = call.index,
                                            .end = count + 1,
                                            .keep = keep,
                                            .enough = 1,
                                            .too = left_out})
                               .size();
    }
    EXPECT_EQ(found, 1U) << "the sync of " << call.path << ", call " << call.index;
  }
  return syncs;
}

}  // namespace weft::checkpoint
