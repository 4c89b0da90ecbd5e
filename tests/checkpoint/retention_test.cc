// Lines of checkpoints, what stays of them, and one writer at a time.
#include <csignal>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/checkpoint/memory_state.h"
#include "tests/io/faulty_file_system.h"
#include "weft/base/log.h"

namespace weft::checkpoint {
namespace {

std::vector<Matrix> few_matrices() {
  return {{"tables.a", "weight", DType::kFloat32, 5, 6}};
}

/// Log lines while it lives.
class Logged {
 public:
  Logged() {
    set_log_sink([this](LogLevel, std::string_view text) { text_ += std::string(text) + "\n"; });
  }

  ~Logged() { set_log_sink({}); }

  Logged(const Logged&) = delete;
  Logged& operator=(const Logged&) = delete;

  [[nodiscard]] const std::string& text() const { return text_; }

 private:
  std::string text_;
};

class Retention : public testing::Test {
 protected:
  [[nodiscard]] std::string at(const std::string& name) const {
    return folder_.path() + "/" + name;
  }

  void save_step(Folder& folder, std::int64_t step, std::int64_t keep) {
    SaveOptions options = save_options(folder_.path(), step);
    options.keep = keep;
    options.folder = &folder;
    save_all(options, few_matrices(), 1, 1);
  }

  /// A job that begins anew, or goes on from a checkpoint, and saves some steps.
  void run_job(const std::string& resume,
               const std::vector<std::int64_t>& steps,
               std::int64_t keep) {
    Folder folder({.directory = folder_.path()});
    resume.empty() ? folder.start_job() : folder.resume_job(resume);
    for (const std::int64_t step : steps) {
      save_step(folder, step, keep);
    }
  }

  /// The names of the complete ones, without their beginning.
  [[nodiscard]] std::string steps() const {
    std::string out;
    for (const std::string& directory : list_checkpoints(folder_.path())) {
      out += (out.empty() ? "" : " ") +
             directory.substr(directory.find_first_not_of('0', folder_.path().size() + 6));
    }
    return out;
  }

  TemporaryDirectory folder_;
};

/// A return to an earlier step: the line that is trained has its K, and what was left goes.
TEST_F(Retention, AfterAReturnTheRunningLineCounts) {
  run_job("", {5, 10, 15, 20}, 3);
  EXPECT_EQ(steps(), "10 15 20");
  const Logged logged;
  run_job(at("step-00000010"), {11}, 3);
  EXPECT_NE(logged.text().find("leaves behind step-00000015, step-00000020"), std::string::npos)
      << logged.text();
  EXPECT_EQ(steps(), "10 11 15 20") << "the new line has two, so what was left stays";
  run_job(folder_.path(), {12}, 3);
  EXPECT_EQ(steps(), "10 11 12") << "the new line has three";
  run_job(folder_.path(), {13, 14}, 3);
  EXPECT_EQ(steps(), "12 13 14");
}

/// Whatever its step and save number: none goes without having been named.
TEST_F(Retention, AllThatIsLeftBehindIsNamedAndSoIsWhatGoes) {
  run_job("", {5, 10, 15, 20}, 0);
  run_job(at("step-00000005"), {6, 7}, 0);
  const Logged logged;
  run_job(at("step-00000020"), {22}, 3);
  EXPECT_EQ(steps(), "15 20 22");
  EXPECT_NE(logged.text().find("leaves behind step-00000006, step-00000007 of"), std::string::npos)
      << logged.text();
  EXPECT_NE(logged.text().find("removes step-00000006, step-00000007 of"), std::string::npos)
      << logged.text();
  EXPECT_EQ(logged.text().find("step-00000005"), std::string::npos)
      << "5 went as the oldest of its line: " << logged.text();
  // Many of them are named too.
  run_job(folder_.path(), {31, 32, 33, 34, 35, 36, 37, 38, 39, 40}, 0);
  run_job(at("step-00000022"), {23, 24, 25}, 3);
  EXPECT_EQ(steps(), "23 24 25");
  for (const char* text : {"leaves behind step-00000031, ", "removes step-00000031, ",
                           "step-00000039, step-00000040 of"}) {
    EXPECT_NE(logged.text().find(text), std::string::npos) << logged.text();
  }
}

/// What a checkpoint of another folder descends from is of its line here too.
TEST_F(Retention, ParentsOfACheckpointElsewhereAreNotLeftBehind) {
  run_job("", {5, 10, 15}, 0);
  const TemporaryDirectory elsewhere;
  const std::string moved = elsewhere.path() + "/step-00000010";
  std::filesystem::rename(at("step-00000010"), moved);
  const Logged logged;
  run_job(moved, {12}, 0);
  EXPECT_NE(logged.text().find("leaves behind step-00000015 of"), std::string::npos)
      << logged.text();
}

/// Another job's checkpoints in the same folder are neither counted nor removed.
TEST_F(Retention, OtherJobsAreNeverTouched) {
  run_job("", {5, 10, 15, 20}, 0);
  {
    Folder folder({.directory = folder_.path()});
    EXPECT_TRUE(says(checkpoint_error([&] { folder.start_job(); }), {"--resume auto"}));
  }
  const TemporaryDirectory elsewhere;
  SaveOptions options = save_options(elsewhere.path(), 2);
  save_all(options, few_matrices(), 1, 1);
  run_job(elsewhere.path(), {4, 6, 8}, 2);
  EXPECT_EQ(steps(), "5 6 8 10 15 20");
  EXPECT_EQ(find_checkpoint(folder_.path()), at("step-00000008"));
  // Without `latest` nobody guesses which job is meant.
  std::filesystem::remove(at("latest"));
  EXPECT_TRUE(says(checkpoint_error([&] { find_checkpoint(folder_.path()); }),
                   {"has checkpoints of 2 jobs"}));
}

TEST_F(Retention, AStepOfAnotherLineKeepsItsNameAndItsBytes) {
  run_job("", {5, 10}, 0);
  run_job(at("step-00000005"), {10, 15}, 0);
  EXPECT_EQ(steps(), "5 10 10.2 15");
  const Lineage first = read_manifest(at("step-00000010")).metadata.lineage;
  const Lineage second = read_manifest(at("step-00000010.2")).metadata.lineage;
  EXPECT_EQ(first.job_id, second.job_id);
  EXPECT_EQ(first.save_number, 2);
  EXPECT_EQ(second.save_number, 2);
  EXPECT_EQ(first.parent_id, second.parent_id);
  EXPECT_EQ(second.parent_name, "step-00000005");
  EXPECT_EQ(read_manifest(folder_.path()).metadata.lineage.parent_name, "step-00000010.2");
}

/// `latest` is of a save before: what has descended from it is the newest, and nothing else.
TEST_F(Retention, TheNewestDescendsFromLatest) {
  run_job("", {5, 10, 15}, 0);
  run_job(at("step-00000005"), {6, 7}, 0);
  std::ofstream(at("latest")) << "step-00000006\n";
  EXPECT_EQ(find_checkpoint(folder_.path()), at("step-00000007"));
  // The name of a save that was interrupted before its rename counts for nothing, and after it for
  // everything.
  std::ofstream(at("next")) << "step-00000099\n";
  EXPECT_EQ(find_checkpoint(folder_.path()), at("step-00000007"));
  std::ofstream(at("next")) << "step-00000015\n";
  EXPECT_EQ(find_checkpoint(folder_.path()), at("step-00000015"));
  std::ofstream(at("next")) << "step-00000015";  // cut
  EXPECT_EQ(find_checkpoint(folder_.path()), at("step-00000007"));
}

/// Checkpoints of versions 1 and 2 know no job: one of them can be gone on from, and is then of the
/// line.
TEST_F(Retention, ACheckpointOfAnEarlierVersionIsOfTheLineThatGoesOnFromIt) {
  run_job("", {5, 10}, 0);
  for (const char* name : {"step-00000005", "step-00000010"}) {
    Manifest manifest = read_manifest(at(name));
    manifest.metadata.lineage = {};
    const std::string text = manifest_to_json(manifest);
    EXPECT_NE(text.find(R"("version": 1)"), std::string::npos);
    EXPECT_EQ(manifest_from_json(text, "m"), manifest);
    std::ofstream(at(name) + "/manifest.json") << text;
  }
  EXPECT_EQ(load_all({folder_.path()}, few_matrices(), 3, 2), 0);
  run_job(folder_.path(), {15}, 2);
  EXPECT_EQ(steps(), "5 10 15");
  EXPECT_EQ(read_manifest(folder_.path()).metadata.lineage.save_number, 1);
  run_job(folder_.path(), {20}, 2);
  EXPECT_EQ(steps(), "5 15 20") << "10 was of the line; of which job 5 is nobody knows";
}

TEST_F(Retention, OnlyWhatNobodyWritesIsRemoved) {
  run_job("", {5}, 0);
  for (const char* name : {"step-00000007.tmp", "step-00000007.0123456789abcdef.tmp"}) {
    std::filesystem::create_directory(at(name));
    std::ofstream(at(name) + std::string("/rank-0000.bin")) << "cut";
  }
  std::ofstream(at("notes.tmp")) << "a person's";
  run_job(folder_.path(), {6}, 0);
  EXPECT_FALSE(std::filesystem::exists(at("step-00000007.tmp")));
  EXPECT_FALSE(std::filesystem::exists(at("step-00000007.0123456789abcdef.tmp")));
  EXPECT_TRUE(std::filesystem::exists(at("notes.tmp")));
}

TEST_F(Retention, OneJobAtATimeAndTheOtherIsTold) {
  Folder first({.directory = folder_.path()});
  first.start_job();
  save_step(first, 5, 0);
  const std::string message =
      checkpoint_error([&] { Folder second({.directory = folder_.path()}); });
  for (const std::string& part :
       {std::string("another job writes checkpoints to '" + folder_.path()),
        fmt::format("process {} on host", getpid()),
        fmt::format("job {:016x}", first.lineage().job_id),
        std::string("wait until it has ended")}) {
    EXPECT_TRUE(says(message, {part})) << part;
  }
  save_step(first, 10, 0);  // nobody has touched what it writes
  EXPECT_EQ(steps(), "5 10");
}

TEST_F(Retention, AJobThatHasLostItsLockWritesNothing) {
  Folder folder({.directory = folder_.path()});
  folder.start_job();
  save_step(folder, 5, 0);
  std::filesystem::remove(at("lock"));
  try {
    save_step(folder, 10, 0);
    ADD_FAILURE() << "it was written";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLockLost)
        << "unlike a full disk: no later save can succeed";
    EXPECT_TRUE(says(error.what(), {"no longer this job's"}));
  }
  EXPECT_EQ(steps(), "5");
}

/// A file system that is away for a while is no lost lock.
TEST_F(Retention, ALockThatCannotBeLookedAtIsNotLost) {
  const std::string aside = folder_.path() + ".aside";
  {
    Folder folder({.directory = folder_.path()});
    folder.start_job();
    std::filesystem::rename(folder_.path(), aside);
    EXPECT_TRUE(says(checkpoint_error([&] { folder.begin(5); }), {"it cannot be seen whether"}));
    std::filesystem::rename(aside, folder_.path());
    save_step(folder, 5, 0);
  }
  EXPECT_EQ(steps(), "5");

  io::FaultyFileSystem files({.has_locks = false});
  Folder folder({.directory = "/ck", .timeout_s = 1e6, .files = &files});
  folder.start_job();
  files.set_hook([](const io::Call& call) {
    const bool away = call.path.starts_with("/ck/lock");
    return away ? io::Verdict{io::Verdict::What::kFail, EIO} : io::Verdict{};
  });
  EXPECT_TRUE(says(checkpoint_error([&] { folder.begin(5); }), {"it cannot be seen whether"}))
      << "not the message of a lock that is gone";
  files.set_hook({});
  folder.discard(folder.begin(5));
  ASSERT_FALSE(files.remove("/ck/lock.held"));
  EXPECT_TRUE(says(checkpoint_error([&] { folder.begin(5); }), {"OTHER CODE: the lock of '/ck'"}));
}

/// Another process holds the folder and is killed: nobody has to remove anything.
TEST_F(Retention, TheLockOfAKilledProcessIsFree) {
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  const pid_t child = fork();
  if (child == 0) {
    const Folder folder({.directory = folder_.path()});
    const ssize_t told = write(pipe_ends[1], "x", 1);
    pause();
    _exit(static_cast<int>(told));
  }
  char ready = 0;
  ASSERT_EQ(read(pipe_ends[0], &ready, 1), 1);
  EXPECT_TRUE(says(checkpoint_error([&] { Folder own({.directory = folder_.path()}); }),
                   {fmt::format("process {} on host", child)}));
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  close(pipe_ends[0]);
  close(pipe_ends[1]);
  run_job("", {5}, 0);
  EXPECT_EQ(steps(), "5");
}

TEST_F(Retention, WithoutLocksOfTheSystemTooThereIsOneWriter) {
  io::FaultyFileSystem files({.has_locks = false});
  const FolderOptions options{.directory = "/ck", .timeout_s = 1e6, .files = &files};
  {
    Folder first(options);
    first.start_job();
    EXPECT_TRUE(says(checkpoint_error([&] { Folder second(options); }),
                     {fmt::format("process {} on host", getpid())}));
  }
  EXPECT_EQ(files.status("/ck").kind, io::Kind::kMissing) << "made for nothing, and removed";
  Folder third(options);
}

}  // namespace
}  // namespace weft::checkpoint
