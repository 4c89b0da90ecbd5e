#include "weft/io/file_system.h"

#include <filesystem>
#include <functional>
#include <string>
#include <utility>

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/io/faulty_file_system.h"

namespace weft::io {
namespace {

std::string text_of(FileSystem& files, const std::string& path) {
  std::string text;
  const std::error_code error = read_file(files, path, 1 << 20, text);
  return error ? "ERROR " + error.message() : text;
}

/// Both file systems, below a folder of their own.
class BothFileSystems : public testing::TestWithParam<bool> {
 protected:
  BothFileSystems() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-io-XXXXXX").string();
    folder_ = GetParam() ? mkdtemp(pattern.data()) : "/memory";
    if (!GetParam()) {
      EXPECT_FALSE(memory_.make_directory(folder_));
    }
  }

  ~BothFileSystems() override {
    if (GetParam()) {
      std::filesystem::remove_all(folder_);
    }
  }

  FileSystem& files() {
    return GetParam() ? real_file_system() : static_cast<FileSystem&>(memory_);
  }

  std::string at(const std::string& name) { return folder_ + "/" + name; }

  FaultyFileSystem memory_;
  std::string folder_;
};

TEST_P(BothFileSystems, FilesAreWrittenReadRenamedLinkedAndRemoved) {
  EXPECT_FALSE(write_file(files(), at("a"), "one"));
  EXPECT_EQ(text_of(files(), at("a")), "one");
  EXPECT_EQ(write_file(files(), at("a"), "two", OpenMode::kExclusive), error_of(EEXIST));
  EXPECT_FALSE(write_file(files(), at("a"), "2"));
  EXPECT_EQ(text_of(files(), at("a")), "2");
  EXPECT_FALSE(files().link(at("a"), at("b")));
  EXPECT_EQ(files().link(at("a"), at("b")), error_of(EEXIST));
  EXPECT_FALSE(files().rename(at("a"), at("c")));
  EXPECT_EQ(files().list(folder_).names, (std::vector<std::string>{"b", "c"}));
  EXPECT_EQ(files().status(at("c")).bytes, 1);
  EXPECT_EQ(files().status(at("a")).kind, Kind::kMissing);
  EXPECT_FALSE(files().remove(at("b")));
  EXPECT_EQ(files().remove(at("b")), error_of(ENOENT));
  EXPECT_EQ(text_of(files(), at("c")), "2");
  EXPECT_FALSE(files().sync_directory(folder_));
  std::string text;
  EXPECT_EQ(read_file(files(), at("none"), 10, text), error_of(ENOENT));
  EXPECT_FALSE(write_file(files(), at("c"), std::string(11, 'x')));
  EXPECT_EQ(read_file(files(), at("c"), 10, text), error_of(EFBIG));
  EXPECT_EQ(read_file(files(), folder_, 10, text), error_of(EINVAL));
}

TEST_P(BothFileSystems, DirectoriesAreMadeSwappedAndRemoved) {
  EXPECT_FALSE(make_directories(files(), at("x/y//z/")));
  EXPECT_FALSE(make_directories(files(), at("x/y")));
  EXPECT_EQ(files().make_directory(at("x")), error_of(EEXIST));
  EXPECT_FALSE(write_file(files(), at("x/y/f"), "f"));
  EXPECT_EQ(make_directories(files(), at("x/y/f/g")), error_of(ENOTDIR));
  EXPECT_FALSE(files().make_directory(at("e")));
  EXPECT_FALSE(files().exchange(at("e"), at("x")));
  EXPECT_EQ(files().list(at("e")).names, std::vector<std::string>{"y"});
  EXPECT_EQ(files().rename(at("x"), at("e")), error_of(ENOTEMPTY));
  EXPECT_TRUE(files().remove(at("e")));
  EXPECT_FALSE(remove_all(files(), at("e")));
  EXPECT_FALSE(remove_all(files(), at("e")));
  EXPECT_EQ(files().list(folder_).names, std::vector<std::string>{"x"});
}

TEST_P(BothFileSystems, ALockKeepsOthersOutUntilItGoes) {
  Locked first = files().lock(at("l"));
  ASSERT_EQ(first.outcome, LockOutcome::kHeld);
  EXPECT_TRUE(first.lock->is_current());
  EXPECT_EQ(files().lock(at("l")).outcome, LockOutcome::kBusy);
  EXPECT_FALSE(files().remove(at("l")));
  EXPECT_FALSE(first.lock->is_current());
  Locked second = files().lock(at("l"));
  EXPECT_EQ(second.outcome, LockOutcome::kHeld);
  first.lock.reset();
  EXPECT_EQ(files().lock(at("l")).outcome, LockOutcome::kBusy);
  second.lock.reset();
  EXPECT_EQ(files().lock(at("l")).outcome, LockOutcome::kHeld);
  EXPECT_EQ(files().lock(at("no/l")).outcome, LockOutcome::kFailed);
}

INSTANTIATE_TEST_SUITE_P(Files, BothFileSystems, testing::Bool(), [](const auto& param_info) {
  return param_info.param ? "Real" : "Memory";
});

TEST(RealFileSystem, APipeIsNotWaitedFor) {
  std::string pattern = (std::filesystem::temp_directory_path() / "weft-io-XXXXXX").string();
  const std::string folder = mkdtemp(pattern.data());
  ASSERT_EQ(mkfifo((folder + "/pipe").c_str(), 0600), 0);
  EXPECT_EQ(real_file_system().open(folder + "/pipe", OpenMode::kRead).error, error_of(EINVAL));
  // What a link names is not removed with it.
  ASSERT_FALSE(make_directories(real_file_system(), folder + "/d/e"));
  ASSERT_EQ(symlink((folder + "/d").c_str(), (folder + "/to").c_str()), 0);
  EXPECT_EQ(real_file_system().status(folder + "/to").kind, Kind::kDirectory);
  EXPECT_FALSE(remove_all(real_file_system(), folder + "/to"));
  EXPECT_EQ(real_file_system().status(folder + "/d/e").kind, Kind::kDirectory);
  std::filesystem::remove_all(folder);
}

/// What is there after a crash: all names of the root, with the text of each.
std::string after(FaultyFileSystem& files) {
  std::string out;
  for (const std::string& name : files.list("/").names) {
    out += name + "=" + text_of(files, "/" + name) + ";";
  }
  return out;
}

TEST(FaultyFileSystem, WhatWasSyncedSurvives) {
  FaultyFileSystem files;
  ASSERT_FALSE(write_file(files, "/a", "kept"));
  ASSERT_FALSE(files.sync_directory("/"));
  const Opened open = files.open("/a", OpenMode::kReplace);
  std::int64_t written = 0;
  ASSERT_FALSE(open.file->write("new", 3, written));
  ASSERT_FALSE(write_file(files, "/b", "no name"));
  EXPECT_EQ(after(files), "a=new;b=no name;");
  files.crash(Survival::kNothing);
  EXPECT_EQ(after(files), "a=kept;");
  EXPECT_TRUE(open.file->write("dead", 4, written)) << "its process has ended";
}

TEST(FaultyFileSystem, WhatWasNotSyncedSurvivesInPartAndInAnyOrder) {
  std::set<std::string> seen;
  for (std::uint32_t seed = 0; seed < 100; ++seed) {
    FaultyFileSystem files;
    ASSERT_FALSE(write_file(files, "/a", "1"));
    ASSERT_FALSE(files.sync_directory("/"));
    ASSERT_FALSE(files.rename("/a", "/b"));
    ASSERT_FALSE(write_file(files, "/c", "2"));
    files.crash(Survival::kSome, seed);
    seen.insert(after(files));
  }
  EXPECT_EQ(seen, (std::set<std::string>{"a=1;", "b=1;", "a=1;c=2;", "b=1;c=2;"}));
}

TEST(FaultyFileSystem, CallsFailAreLeftOutCutAndTorn) {
  using What = Verdict::What;
  FaultyFileSystem files;
  const auto write_with = [&](What what) {
    bool first = true;
    files.set_hook([&](const Call& call) {
      const bool now = call.kind == CallKind::kWrite && std::exchange(first, false);
      return now ? Verdict{what, ENOSPC} : Verdict{};
    });
    const std::error_code error = write_file(files, "/f", "abcd");
    files.set_hook({});
    return error.message() + ": " + text_of(files, "/f");
  };
  const std::string none = std::error_code().message();
  const std::string full = error_of(ENOSPC).message();
  EXPECT_EQ(write_with(What::kDo), none + ": abcd");
  EXPECT_EQ(write_with(What::kFail), full + ": ");
  EXPECT_EQ(write_with(What::kIgnore), none + ": ");
  EXPECT_EQ(write_with(What::kShort), none + ": abcd") << "the rest is written by another call";
  EXPECT_EQ(write_with(What::kTorn), full + ": ab");
  // A sync that is left out.
  files.set_hook([](const Call& call) {
    return Verdict{call.kind == CallKind::kSync ? What::kIgnore : What::kDo};
  });
  ASSERT_FALSE(write_file(files, "/f", "lost"));
  ASSERT_FALSE(files.sync_directory("/"));
  EXPECT_EQ(files.calls().size(), 5U);
  files.crash(Survival::kNothing);
  files.set_hook({});
  EXPECT_EQ(text_of(files, "/f"), "abcd");
}

TEST(FaultyFileSystem, ExchangeAndLocksCanBeAbsent) {
  FaultyFileSystem files({.has_exchange = false, .has_locks = false});
  ASSERT_FALSE(write_file(files, "/a", "1"));
  ASSERT_FALSE(write_file(files, "/b", "2"));
  EXPECT_EQ(files.exchange("/a", "/b"), error_of(EINVAL));
  EXPECT_EQ(after(files), "a=1;b=2;");
  EXPECT_EQ(files.lock("/l").outcome, LockOutcome::kUnsupported);
}

}  // namespace
}  // namespace weft::io
