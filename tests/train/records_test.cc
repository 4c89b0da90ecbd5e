// Files of figures on a file system that is full for a while, and how long checkpoints may fail.
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "tests/train/job_fixture.h"
#include "weft/base/error.h"
#include "weft/train/checkpoint_age.h"
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

}  // namespace
}  // namespace weft::train
