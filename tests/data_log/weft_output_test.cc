// Weft files on a disk that fails and forgets: a path is what it was or a whole file, and what
// finish() has returned of stays.
#include "weft/data/weft_output.h"

#include <cerrno>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/faulty_file_system.h"
#include "weft/base/error.h"
#include "weft/data/weft_format.h"

namespace weft::data {
namespace {

using io::Call;
using io::CallKind;
using io::FaultyFileSystem;
using io::Survival;
using io::Verdict;
using What = io::Verdict::What;

constexpr const char* kFolder = "/logs";
constexpr const char* kFile = "/logs/day.weft";

Schema one_label() {
  Schema schema;
  schema.labels = {"click"};
  return schema;
}

/// Ten samples with this label.
layout::EncodedBlock block_of(float label) {
  RawBlock block;
  block.reset(one_label());
  block.size = 10;
  block.labels[0].assign(10, label);
  layout::EncodedBlock encoded;
  layout::encode_block(block, one_label(), encoded);
  return encoded;
}

/// Twenty samples.
void write_log(FaultyFileSystem& files, float label) {
  WeftOutput output(kFile, one_label(), {}, files);
  output.write(block_of(label));
  output.write(block_of(label));
  output.finish();
}

/// A folder with a log of label 1, all of it on the disk.
void begin(FaultyFileSystem& files) {
  ASSERT_FALSE(files.make_directory(kFolder));
  ASSERT_FALSE(files.sync_directory("/"));
  write_log(files, 1);
}

/// The label of all samples of the log, -1 where the file is missing. Throws Error(kData) where it
/// is not whole.
float label_in(FaultyFileSystem& files) {
  std::string content;
  if (io::read_file(files, kFile, 1 << 20, content)) {
    return -1;
  }
  const auto source = open_weft_bytes(std::as_bytes(std::span(content)), kFile);
  RawBlock block;
  source->read(std::vector<std::int64_t>{0, 5, 19}, block);
  EXPECT_EQ(source->size(), 20);
  EXPECT_EQ(block.labels[0], std::vector<float>(3, block.labels[0][0]));
  return block.labels[0][0];
}

std::vector<Call> calls_of_a_log() {
  FaultyFileSystem files;
  begin(files);
  files.set_hook([](const Call&) { return Verdict{}; });
  write_log(files, 2);
  return files.calls();
}

/// The message of the Error(kIo) that a log of label 2 ends with; empty where it is written.
std::string failure_of(FaultyFileSystem& files) {
  try {
    write_log(files, 2);
    return {};
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
    return error.what();
  }
}

// Whatever call fails, the error names the file and the reason, and the disk has no file more than
// before.
TEST(WeftOutput, EveryCallThatFailsIsAnError) {
  const std::vector<Call> calls = calls_of_a_log();
  ASSERT_GE(calls.size(), 8U);
  for (const Call& failing : calls) {
    for (const What what : {What::kFail, What::kTorn}) {
      if (what == What::kTorn && failing.kind != CallKind::kWrite) {
        continue;
      }
      FaultyFileSystem files;
      begin(files);
      files.set_hook([&](const Call& call) {
        return call.index == failing.index ? Verdict{what, ENOSPC} : Verdict{};
      });
      const std::string message = failure_of(files);
      files.set_hook({});
      EXPECT_NE(message.find(kFile), std::string::npos) << message << " at " << failing.index;
      EXPECT_NE(message.find(std::strerror(ENOSPC)), std::string::npos) << message;
      EXPECT_EQ(files.list(kFolder).names, std::vector<std::string>{"day.weft"}) << message;
      EXPECT_EQ(label_in(files), failing.kind == CallKind::kSyncDirectory ? 2 : 1) << message;
    }
  }
}

TEST(WeftOutput, WritesThatAreCutShortGoOn) {
  FaultyFileSystem files;
  begin(files);
  files.set_hook([](const Call& call) {
    return Verdict{call.kind == CallKind::kWrite ? What::kShort : What::kDo};
  });
  write_log(files, 2);
  files.set_hook({});
  EXPECT_EQ(label_in(files), 2);
}

// Who may write to a folder and not read it cannot synchronise it, and gets the file.
TEST(WeftOutput, AFolderThatCannotBeReadIsNoError) {
  FaultyFileSystem files;
  begin(files);
  files.set_hook([](const Call& call) {
    return call.kind == CallKind::kSyncDirectory ? Verdict{What::kFail, EACCES} : Verdict{};
  });
  write_log(files, 2);
  files.set_hook({});
  EXPECT_EQ(label_in(files), 2);
}

// The machine ends between any two calls, and of what was not synchronised nothing, some or all
// survives: the path has the old log or the new one, whole.
TEST(WeftOutput, ACrashAnywhereLeavesAWholeFile) {
  const auto end = std::ssize(calls_of_a_log());
  for (std::int64_t at = 0; at <= end; ++at) {
    for (std::uint32_t seed = 0; seed < 20; ++seed) {
      FaultyFileSystem files;
      begin(files);
      files.set_hook([at](const Call& call) {
        return call.index < at ? Verdict{} : Verdict{What::kFail, EIO};
      });
      const std::string message = failure_of(files);
      EXPECT_EQ(message.empty(), at == end);
      files.set_hook({});
      files.crash(seed == 0   ? Survival::kNothing
                  : seed == 1 ? Survival::kAll
                              : Survival::kSome,
                  seed);
      const float label = label_in(files);
      EXPECT_TRUE(label == 2 || (at < end && label == 1)) << label << " at " << at;
    }
  }
}

// The controls: without either sync a log that is said to be written can be lost.
TEST(WeftOutput, NeitherSyncCanBeLeftOut) {
  for (const CallKind kind : {CallKind::kSync, CallKind::kSyncDirectory}) {
    int lost = 0;
    for (std::uint32_t seed = 0; seed < 50; ++seed) {
      FaultyFileSystem files;
      begin(files);
      files.set_hook([kind](const Call& call) {
        return Verdict{call.kind == kind ? What::kIgnore : What::kDo};
      });
      write_log(files, 2);
      files.set_hook({});
      files.crash(Survival::kSome, seed);
      try {
        lost += label_in(files) == 2 ? 0 : 1;
      } catch (const Error&) {
        ++lost;
      }
    }
    EXPECT_GT(lost, 0) << (kind == CallKind::kSync ? "the file's" : "the folder's");
  }
}

// Each has a file of its own until it is whole; the last to end gives its file the name.
TEST(WeftOutput, TwoWritersOfOnePathDoNotMix) {
  FaultyFileSystem files;
  begin(files);
  WeftOutput first(kFile, one_label(), {}, files);
  WeftOutput second(kFile, one_label(), {}, files);
  first.write(block_of(2));
  second.write(block_of(3));
  first.write(block_of(2));
  second.write(block_of(3));
  second.finish();
  EXPECT_EQ(label_in(files), 3);
  first.finish();
  EXPECT_EQ(label_in(files), 2);
  EXPECT_EQ(files.list(kFolder).names, std::vector<std::string>{"day.weft"});
}

TEST(WeftOutput, APathWithoutAFolderIsInTheWorkingFolder) {
  FaultyFileSystem files;
  {
    WeftOutput output("day.weft", one_label(), {}, files);
    output.write(block_of(1));
    output.finish();
  }
  EXPECT_EQ(files.calls().back().kind, CallKind::kSyncDirectory);
  EXPECT_EQ(files.calls().back().path, ".");
}

}  // namespace
}  // namespace weft::data
