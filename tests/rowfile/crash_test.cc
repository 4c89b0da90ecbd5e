// Segments on a disk that fails and forgets: a file is sealed and whole, or it is refused.
#include <algorithm>
#include <optional>

#include "tests/rowfile/segment_support.h"

namespace weft::rowfile {
namespace {

using io::Call;
using io::CallKind;
using io::FaultyFileSystem;
using io::Survival;
using io::Verdict;
using What = io::Verdict::What;

/// Several writes of 1 MiB.
void write_large(FaultyFileSystem& files) {
  SegmentWriter writer(files, kPath, {{7, 2600}, {9, 50'000}});
  for (RowId id = 0; id < 1200; id += 100) {
    writer.append(0, range(id, id + 100), rows_of(range(id, id + 100), 2600));
    writer.append(1, range(id, id + 1), rows_of(range(id, id + 1), 50'000));
  }
  writer.remove(0, range(0, 10));
  writer.seal();
}

std::vector<Call> calls_of(const std::function<void(FaultyFileSystem&)>& job) {
  FaultyFileSystem files;
  files.set_hook([](const Call&) { return Verdict{}; });
  job(files);
  return files.calls();
}

const State& whole_state() {
  static const State state = [] {
    FaultyFileSystem files;
    write_large(files);
    return state_of(files);
  }();
  return state;
}

/// Whether the file is there and sealed; then it must be whole.
bool is_whole(FaultyFileSystem& files) {
  std::optional<SegmentReader> reader;
  try {
    reader.emplace(files, kPath);
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
    return false;
  }
  State state;
  replay(*reader, state);
  EXPECT_TRUE(state == whole_state()) << "it is sealed, and its rows are others";
  return true;
}

TEST(SegmentCrash, BetweenAnyTwoCallsAFileIsWholeOrRefused) {
  const std::size_t calls = calls_of(write_large).size();
  ASSERT_GE(calls, 8U);
  for (std::size_t end = 0; end <= calls; ++end) {
    for (std::uint32_t seed = 0; seed < 10; ++seed) {
      FaultyFileSystem files;
      files.set_hook([end](const Call& call) {
        return std::cmp_less(call.index, end) ? Verdict{} : Verdict{What::kFail, EIO};
      });
      bool sealed = true;
      try {
        write_large(files);
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), ErrorCode::kIo) << error.what();
        sealed = false;
      }
      files.set_hook({});
      if (sealed) {
        EXPECT_FALSE(files.sync_directory("/"));
      }
      files.crash(seed == 0   ? Survival::kNothing
                  : seed == 1 ? Survival::kAll
                              : Survival::kSome,
                  seed);
      const bool whole = is_whole(files);
      EXPECT_EQ(sealed, end == calls);
      EXPECT_TRUE(whole || !sealed) << "call " << end << ", seed " << seed;
    }
  }
}

/// The guard behind "a file with a valid trailer is whole": what lies before the last block is on
/// the disk before that is written.
TEST(SegmentCrash, LastBlockIsWrittenBehindASync) {
  std::vector<CallKind> kinds;
  for (const Call& call : calls_of(write_large)) {
    kinds.push_back(call.kind);
  }
  const std::vector<CallKind> wanted = {CallKind::kWrite, CallKind::kSync, CallKind::kWrite,
                                        CallKind::kSync, CallKind::kClose};
  ASSERT_GE(kinds.size(), wanted.size());
  EXPECT_TRUE(std::equal(wanted.rbegin(), wanted.rend(), kinds.rbegin()));
}

TEST(SegmentCrash, EveryFailedCallIsReportedAndEndsTheWriter) {
  const std::vector<Call> calls = calls_of(write_large);
  for (const Call& failing : calls) {
    for (const What what : {What::kFail, What::kTorn}) {
      if (what == What::kTorn && failing.kind != CallKind::kWrite) {
        continue;
      }
      FaultyFileSystem files;
      files.set_hook([&](const Call& call) {
        return call.index == failing.index ? Verdict{what, ENOSPC} : Verdict{};
      });
      try {
        write_large(files);
        ADD_FAILURE() << "call " << failing.index << " was not missed";
      } catch (const Error& error) {
        const std::string message = error.what();
        EXPECT_NE(message.find("'/one.rows'"), std::string::npos) << message;
        EXPECT_NE(message.find("free space there or choose another directory"), std::string::npos)
            << message;
      }
      files.set_hook({});
      is_whole(files);
    }
  }
}

TEST(SegmentCrash, NothingIsWrittenBehindAFailedWrite) {
  FaultyFileSystem files;
  SegmentWriter writer(files, kPath, {{1, 4000}}, ErrorCode::kCheckpoint);
  files.set_hook([](const Call& call) {
    return call.kind == CallKind::kWrite ? Verdict{What::kFail, EIO} : Verdict{};
  });
  const Bytes rows = rows_of(range(0, 1000), 4000);
  EXPECT_THROW(writer.append(0, range(0, 1000), rows), Error);
  files.set_hook({});
  try {
    writer.seal();
    ADD_FAILURE() << "it went on";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kCheckpoint);
    EXPECT_NE(std::string(error.what()).find("an earlier write failed"), std::string::npos);
  }
  EXPECT_NE(refusal(files), "");
}

TEST(SegmentCrash, ShortWritesAreGoneOnWith) {
  FaultyFileSystem files;
  files.set_hook([](const Call& call) {
    return call.kind == CallKind::kWrite && call.index % 3 != 0 ? Verdict{What::kShort} : Verdict{};
  });
  write_large(files);
  files.set_hook({});
  EXPECT_TRUE(is_whole(files));
}

TEST(SegmentCrash, FailedReadsAreErrors) {
  FaultyFileSystem files;
  write_large(files);
  files.set_hook([](const Call&) { return Verdict{}; });
  EXPECT_EQ(refusal(files), "");
  const std::size_t calls = files.calls().size();
  for (std::size_t failing = 0; failing < calls; ++failing) {
    files.set_hook([failing](const Call& call) {
      return std::cmp_equal(call.index, failing) ? Verdict{What::kFail, EIO} : Verdict{};
    });
    EXPECT_NE(refusal(files), "") << "call " << failing;
  }
}

}  // namespace
}  // namespace weft::rowfile
