// A SegmentStore on a disk that fails, is full, is damaged, or is another job's.
#include <algorithm>
#include <atomic>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/faulty_file_system.h"
#include "tests/storage/store_model.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/io/process.h"
#include "weft/storage/segment_store.h"

namespace weft::storage {
namespace {

using What = io::Verdict::What;

std::string message_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& error) {
    EXPECT_TRUE(error.code() == ErrorCode::kIo || error.code() == ErrorCode::kResource)
        << to_string(error.code()) << ": " << error.what();
    return error.what();
  }
  return "";
}

/// A store's life: everything that calls the file system. Returns the first error.
std::string live(io::FaultyFileSystem& files) {
  return message_of([&] {
    SegmentStoreOptions options = tiny_store({"/a", "/b"});
    options.segment_bytes = 64 << 10;
    StoreModel model(files, options,
                     {{.key = 1, .rows = {0, 400, 1}, .row_bytes = 400, .table = "one"},
                      {.key = 2, .rows = {0, 9, 1}, .row_bytes = 5000, .table = "two"}},
                     1);
    const std::string error = message_of([&] {
      for (int i = 0; i < 20; ++i) {
        model.write(60, 0);
        model.write(3, 1);
        model.read(40);
      }
      model.store().retire(model.store().seal());
      model.read_all();
    });
    EXPECT_EQ(model.wrong(), 0) << "no error hides a wrong row";
    if (!error.empty()) {
      // A read that failed has no effect on later calls; a write that failed has one on all.
      const std::string again = message_of([&] { model.shard(0).drain(); });
      if (!again.empty()) {
        EXPECT_EQ(message_of([&] { model.write(1, 0); }), again);
        EXPECT_EQ(message_of([&] { model.shard(0).drain(); }), again);
        EXPECT_NE(again.find(message_of([&] { model.store().seal(); })), std::string::npos);
        EXPECT_NE(again.find("table 'one'"), std::string::npos) << again;
      }
      throw Error(ErrorCode::kIo, error);
    }
  });
}

/// Fails the n-th call of a kind; the store's segments are meant where it removes.
TEST(StoreFaults, EachCallFailsInTurn) {
  using io::CallKind;
  io::FaultyFileSystem whole;
  ASSERT_EQ(live(whole), "");
  std::map<CallKind, std::int64_t> calls;
  for (const io::Call& call : whole.calls()) {
    ++calls[call.kind];
  }
  std::set<CallKind> noticed;
  for (const auto& [kind, count] : calls) {
    for (std::int64_t n = 0; n < count; n += 1 + n / 3) {
      io::FaultyFileSystem files;
      std::atomic<std::int64_t> seen = 0;
      std::atomic<bool> has_failed = false;
      files.set_hook([&, failing = kind](const io::Call& call) {
        const bool is_meant =
            call.kind == failing && (failing != CallKind::kRemove || call.path.ends_with(".seg"));
        if (!is_meant || seen++ != n) {
          return io::Verdict{};
        }
        has_failed = true;
        return io::Verdict{n % 2 == 0 || failing != CallKind::kWrite ? What::kFail : What::kTorn,
                           EIO};
      });
      const std::string error = live(files);
      if (!error.empty()) {
        EXPECT_TRUE(has_failed);
        EXPECT_NE(error.find("/"), std::string::npos) << "it names a file: " << error;
        noticed.insert(kind);
      }
      // What it has left keeps nobody from beginning again.
      files.set_hook({});
      EXPECT_EQ(live(files), "") << "after call " << n << " of kind " << static_cast<int>(kind);
    }
  }
  for (const CallKind each : {CallKind::kOpen, CallKind::kRead, CallKind::kWrite, CallKind::kSync,
                              CallKind::kSyncDirectory, CallKind::kRemove, CallKind::kLock,
                              CallKind::kList, CallKind::kMakeDirectory}) {
    EXPECT_TRUE(noticed.contains(each)) << static_cast<int>(each);
  }
}

TEST(StoreFaults, AFullDiskIsAnErrorOfEveryLaterCall) {
  io::FaultyFileSystem files;
  StoreModel model(files, tiny_store({"/a"}), some_shards(), 1);
  model.write(100, 1);
  files.set_hook([](const io::Call& call) {
    return call.kind == io::CallKind::kWrite ? io::Verdict{What::kTorn, ENOSPC} : io::Verdict{};
  });
  // Also who waits for room hears of it.
  const std::string error = message_of([&] {
    for (int i = 0; i < 1000; ++i) {
      model.write(100);
    }
  });
  EXPECT_NE(error.find("/a/rows-"), std::string::npos) << error;
  EXPECT_NE(error.find("free space there or choose another directory"), std::string::npos) << error;
  files.set_hook({});
  EXPECT_NE(message_of([&] { model.write(1); }), "");
  EXPECT_NE(message_of([&] { model.read(1); }), "");
  EXPECT_NE(message_of([&] { model.store().seal(); }), "");
}

TEST(StoreFaults, TooManyOpenFilesAreAnErrorThatSaysSo) {
  io::FaultyFileSystem files;
  StoreModel model(files, tiny_store({"/a"}), some_shards(), 1);
  files.set_hook([](const io::Call& call) {
    return call.kind == io::CallKind::kOpen ? io::Verdict{What::kFail, EMFILE} : io::Verdict{};
  });
  model.write(10, 1);
  const std::string error = message_of([&] { model.store().seal(); });
  EXPECT_NE(error.find("ulimit -n"), std::string::npos) << error;
}

/// Flips a byte of a file, wherever it is open.
void flip(io::FaultyFileSystem& files, const std::string& path, std::size_t offset) {
  std::string content;
  ASSERT_FALSE(io::read_file(files, path, 1 << 24, content));
  content[offset] = static_cast<char>(content[offset] ^ 1);
  ASSERT_FALSE(io::write_file(files, path, content));
}

TEST(StoreFaults, AFlippedByteIsFoundWhenItsRowIsRead) {
  io::FaultyFileSystem files;
  SegmentStore store(files, tiny_store({"/a"}));
  RowBacking& shard =
      store.add_shard({.key = 1, .rows = {0, 60, 1}, .row_bytes = 260, .table = "one"});
  std::vector<std::int64_t> rows;
  for (std::int64_t row = 0; row < 60; ++row) {
    rows.push_back(row);
  }
  std::vector<std::byte> packed(60 * 260, std::byte{7});
  shard.write(rows, packed.data());
  const Seal seal = store.seal();
  ASSERT_EQ(seal.files.size(), 1U);
  const auto reads = shard.make_reads();
  const auto fails = [&](std::int64_t row) {
    std::vector<std::uint8_t> found(1);
    const std::vector<std::int64_t> one = {row};
    return message_of([&] {
      reads->begin(one, packed.data());
      reads->wait(found);
    });
  };
  // Block 0 is the header; rows 0 to 14 lie in block 1, 15 to 29 in block 2.
  for (const std::size_t offset : {0, 9, 16, 16 + 260 * 3 + 5, 4095}) {
    flip(files, seal.files[0].path, 2 * 4096 + offset);
    const std::string error = fails(20);
    EXPECT_NE(error.find("table 'one'"), std::string::npos) << error;
    EXPECT_NE(error.find(seal.files[0].path), std::string::npos) << error;
    EXPECT_NE(error.find("block 2, at offset 8192"), std::string::npos) << error;
    EXPECT_EQ(fails(14), "");
    EXPECT_EQ(fails(30), "");
    flip(files, seal.files[0].path, 2 * 4096 + offset);
    EXPECT_EQ(fails(20), "");
  }
}

TEST(StoreFaults, CleaningOfADamagedSegmentIsAnError) {
  io::FaultyFileSystem files;
  StoreModel model(files, tiny_store({"/a"}),
                   {{.key = 1, .rows = {0, 3000, 1}, .row_bytes = 260, .table = "t"}}, 1);
  for (int i = 0; i < 30; ++i) {
    model.write(100);
  }
  const Seal seal = model.store().seal();
  for (const SealedFile& file : seal.files) {
    flip(files, file.path, 5000);
  }
  model.store().retire(seal);
  const std::string error = message_of([&] {
    for (int i = 0; i < 300; ++i) {
      model.write(100);
    }
  });
  EXPECT_NE(error.find("byte 4096"), std::string::npos) << error;
}

TEST(StoreFaults, ADirectoryIsOneStores) {
  io::FaultyFileSystem files;
  SegmentStoreOptions options = tiny_store({"/a", "/b"});
  options.label = "job 17";
  {
    const SegmentStore store(files, options);
    const std::string error = message_of([&] { SegmentStore(files, tiny_store({"/c", "/b"})); });
    const io::ProcessName self = io::this_process();
    EXPECT_NE(error.find("'/b'"), std::string::npos) << error;
    EXPECT_NE(error.find("process " + std::to_string(self.pid)), std::string::npos) << error;
    EXPECT_NE(error.find(self.host), std::string::npos) << error;
    EXPECT_NE(error.find("job 17"), std::string::npos) << error;
  }
  EXPECT_EQ(message_of([&] { SegmentStore(files, tiny_store({"/c", "/b"})); }), "");
}

TEST(StoreFaults, WhatACrashHasLeftIsRemoved) {
  io::FaultyFileSystem files;
  const auto is_there = [&](const std::string& path) {
    return files.status(path).kind == io::Kind::kFile;
  };
  ASSERT_FALSE(files.make_directory("/a"));
  const std::vector<std::string> own = {"rows-0123456789abcdef-00000000.seg",
                                        "rows-ffffffffffffffff-123456789.seg"};
  const std::vector<std::string> others = {"rows-0123456789abcdef-00000000.seg.bak",
                                           "rows-0123456789abcde-00000000.seg",
                                           "rows-0123456789abcdeg-00000000.seg",
                                           "rows-0123456789abcdef-.seg",
                                           "rows-0123456789abcdef-1a.seg",
                                           "rows.seg",
                                           "rows-.seg",
                                           "a"};
  for (const auto& names : {own, others}) {
    for (const std::string& name : names) {
      ASSERT_FALSE(io::write_file(files, "/a/" + name, "x"));
    }
  }
  {
    StoreModel model(files, tiny_store({"/a"}), some_shards(), 1);
    for (const std::string& name : own) {
      EXPECT_FALSE(is_there("/a/" + name)) << name;
    }
    model.write(200, 1);
    model.store().seal();
    EXPECT_EQ(files.list("/a").names.size(), others.size() + 2) << "a lock and a segment";
  }
  std::vector<std::string> left = files.list("/a").names;
  std::vector<std::string> sorted = others;
  std::sort(sorted.begin(), sorted.end());
  EXPECT_EQ(left, sorted) << "its own files go with it, others stay";
}

}  // namespace
}  // namespace weft::storage
