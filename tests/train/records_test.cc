// Files of figures on a file system that is full for a while, and how long checkpoints may fail.
#include <chrono>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <optional>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/base/log.h"
#include "weft/train/checkpoint_age.h"
#include "weft/train/checkpoint_folder.h"
#include "weft/train/record_files.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

/// No file of this process grows beyond so many bytes while it lives.
class FileLimit {
 public:
  explicit FileLimit(rlim_t bytes) : handler_(std::signal(SIGXFSZ, SIG_IGN)) {
    getrlimit(RLIMIT_FSIZE, &before_);
    const rlimit limit{.rlim_cur = bytes, .rlim_max = before_.rlim_max};
    setrlimit(RLIMIT_FSIZE, &limit);
  }

  ~FileLimit() {
    setrlimit(RLIMIT_FSIZE, &before_);
    std::signal(SIGXFSZ, handler_);
  }

  FileLimit(const FileLimit&) = delete;
  FileLimit& operator=(const FileLimit&) = delete;

 private:
  void (*handler_)(int);
  rlimit before_{};
};

std::string contents(const fs::path& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(AppendFile, LeavesNoCutRecord) {
  const TemporaryFolder folder;
  const std::string path = folder.path() + "/metrics.jsonl";
  AppendFile file(path, "advice");
  file.append("first\n");
  {
    const FileLimit limit(9);  // three bytes of the next one fit
    for (int i = 0; i < 2; ++i) {
      try {
        file.append("second\n");
        ADD_FAILURE() << "it was written";
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIo);
        EXPECT_NE(std::string(error.what()).find(path + ": File too large; advice"),
                  std::string::npos)
            << error.what();
      }
      EXPECT_EQ(contents(path), "first\n");
    }
  }
  file.append("third\n");
  EXPECT_EQ(contents(path), "first\nthird\n");
  fs::remove(path);
  file.append("fourth\n");  // somebody has moved the file away
  EXPECT_EQ(contents(path), "fourth\n");
}

TEST(ReplaceFile, LeavesTheOldOneWhole) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() + "/summary.json";
  replace_file(path, "old");
  {
    const FileLimit limit(5);
    EXPECT_THROW(replace_file(path, "a longer text"), Error);
  }
  EXPECT_EQ(contents(path), "old");
  replace_file(path, "a longer text");
  EXPECT_EQ(contents(path), "a longer text");
  fs::create_symlink(path, folder.path() + "/link");
  replace_file(folder.path() + "/link", "through a link");
  EXPECT_EQ(contents(path), "through a link");
  EXPECT_TRUE(fs::is_symlink(folder.path() + "/link"));
  EXPECT_EQ(std::distance(fs::directory_iterator(folder.path()), fs::directory_iterator()), 2);
}

TEST(TrimLines, TakesOutLaterAndCutOnes) {
  const TemporaryFolder folder;
  const fs::path path = folder.path() + "/metrics.jsonl";
  EXPECT_EQ(trim_lines(path, 4), 0);  // there is none
  const std::string kept = "{\"step\": 2}\n{\"step\": 4, \"type\": \"eval\"}\n{\"note\": 1}\n";
  std::ofstream(path) << kept;
  const auto written = fs::last_write_time(path);
  EXPECT_EQ(trim_lines(path, 4), 0);
  EXPECT_EQ(fs::last_write_time(path), written);
  std::ofstream(path) << "{\"step\": 6}\n{\"st{\"step\": 3}\n" << kept << "{\"step\": 3";
  EXPECT_EQ(trim_lines(path, 4), 3);
  EXPECT_EQ(contents(path), kept);
}

Error no_space() {
  return {ErrorCode::kCheckpoint, "no space", 1};
}

TEST(CheckpointAge, EndsTheJobBeyondItsLimit) {
  CheckpointAge age(100, 10, 0);  // three intervals
  for (const std::int64_t step : {110, 120, 130}) {
    const std::string warning = age.failed(step, SaveKind::kInterval, no_space());
    EXPECT_NE(warning.find("no space"), std::string::npos);
    EXPECT_NE(warning.find("tries again at step " + std::to_string(step + 10)), std::string::npos);
  }
  EXPECT_THROW(age.failed(140, SaveKind::kInterval, no_space()), Error);
  EXPECT_EQ(age.failures(), 3);
  age.saved(140);
  age.failed(150, SaveKind::kInterval, no_space());
  try {
    CheckpointAge(0, 10, 15).failed(20, SaveKind::kInterval, no_space());
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_EQ(error.origin_rank(), 1);
    EXPECT_NE(std::string(error.what()).find("20 steps back, more than 15"), std::string::npos);
  }
}

TEST(CheckpointAge, OutlivesNeitherAFinalOneNorOtherErrors) {
  CheckpointAge age(0, 10, 1000);
  EXPECT_THROW(age.failed(10, SaveKind::kFinal, no_space()), Error);
  EXPECT_THROW(age.failed(10, SaveKind::kInterval, {ErrorCode::kTimeout, "rank 1 is missing"}),
               Error);
  EXPECT_EQ(age.failures(), 0);
}

/// Nothing brings a lost lock back, so the job ends at the first save that finds it lost, and says
/// why and no more.
TEST(CheckpointAge, EndsTheJobAtOnceWhenItsLockIsLost) {
  const TemporaryFolder folder;
  const std::string directory = folder.path() + "/ck";
  checkpoint::Folder own({.directory = directory});
  own.start_job();
  fs::remove(directory + "/lock");
  CheckpointAge age(0, 10, 1000);
  try {
    try {
      own.begin(10);
      ADD_FAILURE() << "it has no lock";
    } catch (const Error& error) {
      age.failed(10, SaveKind::kInterval, error);
      ADD_FAILURE() << "it went on";
    }
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kLockLost);
    const std::string message = error.what();
    EXPECT_NE(message.find("no longer this job's"), std::string::npos) << message;
    EXPECT_EQ(message.find("--checkpoint-max-age"), std::string::npos) << message;
  }
  EXPECT_EQ(age.failures(), 0);
}

/// Opens the folder as a job does that is started again.
CheckpointFolder open_again(const std::string& directory,
                            const std::string& resume,
                            double timeout_s) {
  CheckpointFolder out;
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    out = open_checkpoints(world, ctx,
                           {.directory = directory, .resume = resume, .timeout_s = timeout_s});
  });
  return out;
}

TEST(CheckpointFolder, AutoWaitsForTheRunBefore) {
  const TemporaryFolder folder;
  const std::string directory = folder.path() + "/ck";
  std::string logged;
  set_log_sink([&logged](LogLevel, std::string_view text) { logged += std::string(text) + "\n"; });
  std::optional<checkpoint::Folder> before;
  before.emplace(checkpoint::FolderOptions{.directory = directory});
  before->start_job();
  std::thread ends([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    before.reset();
  });
  const CheckpointFolder after = open_again(directory, kResumeAuto, 60);
  ends.join();
  set_log_sink({});
  EXPECT_TRUE(after.folder);
  EXPECT_EQ(after.resume, "");
  EXPECT_NE(logged.find("waiting for up to 60 s (train.timeout_s), because another job writes"),
            std::string::npos)
      << logged;
}

TEST(CheckpointFolder, AJobThatGoesOnRunningIsNotWaitedForLonger) {
  const TemporaryFolder folder;
  const std::string directory = folder.path() + "/ck";
  const checkpoint::Folder other({.directory = directory});
  for (const char* resume : {kResumeAuto, ""}) {  // without auto nothing is waited for
    const double timeout_s = *resume == '\0' ? 1e6 : 0.2;
    try {
      open_again(directory, resume, timeout_s);
      ADD_FAILURE() << "two have the folder";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
      EXPECT_NE(std::string(error.what()).find("another job writes checkpoints to"),
                std::string::npos)
          << error.what();
    }
  }
}

}  // namespace
}  // namespace weft::train
