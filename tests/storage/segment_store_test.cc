#include "weft/storage/segment_store.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>
#include <stdlib.h>

#include "tests/io/faulty_file_system.h"
#include "tests/storage/store_model.h"
#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/storage/read_memory.h"

namespace weft::storage {
namespace {

/// A folder of the real file system.
class Folder {
 public:
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-rows-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }

  ~Folder() { std::filesystem::remove_all(path_); }

  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;

  [[nodiscard]] std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

bool has_ring() {
  try {
    io::make_block_reads(io::real_file_system(), {.method = io::ReadMethod::kRing});
    return true;
  } catch (const Error&) {
    return false;
  }
}

/// Delays some calls that change something, as a disk does.
void delay_writes(io::FaultyFileSystem& files) {
  files.set_hook([](const io::Call& call) {
    if (call.changes() && call.index % 5 == 0) {
      std::this_thread::sleep_for(std::chrono::microseconds(200 * (call.index % 7)));
    }
    return io::Verdict{};
  });
}

/// Everything must have happened, or the test shows nothing.
void expect_everything_happened(const StoreCounts& counts) {
  EXPECT_GT(counts.rows_replaced, 0);
  EXPECT_GT(counts.rows_buffered, 0);
  EXPECT_GT(counts.rows_read, counts.groups_read);
  EXPECT_GT(counts.rows_moved, 0);
  EXPECT_GT(counts.segments_removed, 3);
}

TEST(SegmentStore, HoldsWhatWasWritten) {
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    io::FaultyFileSystem files;
    delay_writes(files);
    const std::vector<std::string> one = {"/a"};
    const std::vector<std::string> three = {"/a", "/b/c", "/d"};
    StoreModel model(files, tiny_store(seed % 2 == 0 ? one : three), some_shards(), seed);
    for (int i = 0; i < 250; ++i) {
      model.step();
    }
    model.read_all();
    EXPECT_EQ(model.wrong(), 0) << "seed " << seed;
    expect_everything_happened(model.store().counts());
  }
}

/// The same on a disk, by both methods.
TEST(SegmentStore, HoldsWhatWasWrittenOnADisk) {
  for (const auto method : {io::ReadMethod::kRing, io::ReadMethod::kThreads}) {
    if (method == io::ReadMethod::kRing && !has_ring()) {
      continue;
    }
    const Folder folder;
    StoreModel model(io::real_file_system(),
                     tiny_store({folder.at("one"), folder.at("two")}, method), some_shards(), 9);
    EXPECT_EQ(model.store().read_method(), method);
    for (int i = 0; i < 300; ++i) {
      model.step();
    }
    model.read_all();
    EXPECT_EQ(model.wrong(), 0);
    expect_everything_happened(model.store().counts());
  }
}

/// The test above finds a store that breaks a rule.
TEST(SegmentStore, AReadThatPassesTheWriteBufferByIsFound) {
  io::FaultyFileSystem files;
  SegmentStoreOptions options = tiny_store({"/a"});
  options.left_out = StoreRule::kBufferedRows;
  StoreModel model(files, options, some_shards(), 1);
  for (int i = 0; i < 100; ++i) {
    model.write(20);
    model.read(5);
  }
  EXPECT_GT(model.wrong(), 0);
}

TEST(SegmentStore, ARowReadBeforeItLiesInItsFileIsFound) {
  io::FaultyFileSystem files;
  SegmentStoreOptions options = tiny_store({"/a"});
  options.left_out = StoreRule::kWholeRows;
  StoreModel model(files, options, some_shards(), 1);
  try {
    for (int i = 0; i < 100; ++i) {
      model.write(20);
      model.shard(0).drain();
      model.read(5);
    }
    ADD_FAILURE() << "all reads found their rows";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kIo);
  }
}

/// Versions of rows are written in turn; a reader finds the one that was there when it began, or a
/// later one.
TEST(SegmentStore, ReadersBesideAWriterFindNothingOlder) {
  io::FaultyFileSystem files;
  delay_writes(files);
  SegmentStore store(files, tiny_store({"/a", "/b"}));
  constexpr std::int64_t kRows = 600;
  constexpr std::int64_t kRowBytes = 200;
  RowBacking& shard =
      store.add_shard({.key = 1, .rows = {0, kRows, 1}, .row_bytes = kRowBytes, .table = "t"});
  std::vector<std::atomic<std::uint64_t>> begun(kRows);
  std::vector<std::atomic<std::uint64_t>> written(kRows);
  std::atomic<bool> ends = false;
  std::atomic<std::int64_t> wrong = 0;
  std::atomic<std::int64_t> seen = 0;
  const auto read = [&](std::uint32_t seed) {
    std::mt19937 random(seed);
    const auto reads = shard.make_reads();
    std::vector<std::byte> packed(32 * kRowBytes);
    while (!ends) {
      std::vector<std::int64_t> rows;
      std::vector<std::uint64_t> least;
      for (std::int64_t row = random() % 20; row < kRows && rows.size() < 32;
           row += 1 + random() % 40) {
        rows.push_back(row);
        least.push_back(written[at(row)]);
      }
      std::vector<std::uint8_t> found(rows.size());
      reads->begin(rows, packed.data());
      reads->wait(found);
      for (std::size_t i = 0; i < rows.size(); ++i) {
        std::uint64_t version = 0;
        const std::byte* const bytes = packed.data() + i * at(kRowBytes);
        if (found[i] == 1) {
          std::memcpy(&version, bytes, sizeof version);
          const auto should = bytes_of(0, rows[i], version, kRowBytes);
          wrong += std::memcmp(bytes + 8, should.data() + 8, at(kRowBytes) - 8) == 0 ? 0 : 1;
        }
        wrong += least[i] <= version && version <= begun[at(rows[i])] ? 0 : 1;
        ++seen;
      }
    }
  };
  std::vector<std::thread> readers;
  for (std::uint32_t seed = 0; seed < 3; ++seed) {
    readers.emplace_back(read, seed);
  }
  std::mt19937 random(5);
  for (std::uint64_t version = 1; version <= 1500 || seen < 3000; ++version) {
    std::vector<std::int64_t> rows;
    std::vector<std::byte> packed;
    for (std::int64_t row = random() % 20; row < kRows; row += 1 + random() % 60) {
      rows.push_back(row);
      auto bytes = bytes_of(0, row, version, kRowBytes);
      std::memcpy(bytes.data(), &version, sizeof version);
      packed.insert(packed.end(), bytes.begin(), bytes.end());
      begun[at(row)] = version;
    }
    shard.write(rows, packed.data());
    for (const std::int64_t row : rows) {
      written[at(row)] = version;
    }
  }
  ends = true;
  for (std::thread& reader : readers) {
    reader.join();
  }
  EXPECT_EQ(wrong, 0);
  EXPECT_GT(store.counts().rows_moved, 0);
  EXPECT_GT(store.counts().rows_read, 0);
}

/// More groups than a reader has memory for at once.
TEST(SegmentStore, LongListsAreReadPieceByPiece) {
  io::FaultyFileSystem files;
  SegmentStoreOptions options = tiny_store({"/a"});
  options.segment_bytes = 8 << 20;
  options.write_buffer_bytes = 4 << 20;
  SegmentStore store(files, options);
  constexpr std::int64_t kRows = 5000;
  constexpr std::int64_t kRowBytes = 4500;
  RowBacking& shard =
      store.add_shard({.key = 1, .rows = {0, kRows, 1}, .row_bytes = kRowBytes, .table = "t"});
  std::vector<std::int64_t> rows;
  std::vector<std::byte> packed;
  for (std::int64_t row = 0; row < kRows; ++row) {
    const auto bytes = bytes_of(1, row, 1, kRowBytes);
    rows.push_back((row * 7) % kRows);
    packed.insert(packed.end(), bytes.begin(), bytes.end());
  }
  shard.write(rows, packed.data());
  std::vector<std::byte> got(packed.size());
  std::vector<std::uint8_t> found(rows.size());
  const auto reads = shard.make_reads();
  reads->begin(rows, got.data());
  reads->wait(found);
  EXPECT_EQ(found, std::vector<std::uint8_t>(rows.size(), 1));
  EXPECT_TRUE(got == packed);
  reads->begin(std::span(rows).first(0), nullptr);
  reads->wait({});
}

/// Reads of many tables are in flight at a time, and ask for more than the store's memory for
/// reads.
TEST(SegmentStore, ReadsOfManyTablesShareABoundedMemory) {
  io::FaultyFileSystem files;
  SegmentStoreOptions options = tiny_store({"/a"});
  options.segment_bytes = 8 << 20;
  options.write_buffer_bytes = 4 << 20;
  SegmentStore store(files, options);
  constexpr std::int64_t kRows = 70;
  constexpr std::uint64_t kShards = 310;

  struct Table {
    std::int64_t row_bytes = 0;
    std::vector<std::int64_t> rows;
    std::vector<std::byte> packed;
    std::vector<std::byte> got;
    std::unique_ptr<RowReads> reads;
  };

  std::vector<Table> tables(kShards);
  for (std::uint64_t k = 0; k < kShards; ++k) {
    Table& table = tables[k];
    table.row_bytes = k == 7 ? (300 << 10) : 4000 - static_cast<std::int64_t>(k);  // a row a group
    RowBacking& shard = store.add_shard({.key = k + 1,
                                         .rows = {0, kRows, 1},
                                         .row_bytes = table.row_bytes,
                                         .table = "t" + std::to_string(k)});
    for (std::int64_t row = 0; row < kRows; ++row) {
      const auto bytes = bytes_of(k + 1, row, 1, table.row_bytes);
      table.rows.push_back(row);
      table.packed.insert(table.packed.end(), bytes.begin(), bytes.end());
    }
    shard.write(table.rows, table.packed.data());
    table.reads = shard.make_reads();
    table.got.resize(table.packed.size());
  }
  store.retire(store.seal());
  std::int64_t most = 0;
  for (int turn = 0; turn < 2; ++turn) {
    for (Table& table : tables) {
      std::fill(table.got.begin(), table.got.end(), std::byte{0});
      table.reads->begin(table.rows, table.got.data());
      most = std::max(most, store.counts().read_bytes);
    }
    for (Table& table : tables) {
      std::vector<std::uint8_t> found(kRows);
      table.reads->wait(found);
      EXPECT_EQ(found, std::vector<std::uint8_t>(kRows, 1));
      EXPECT_TRUE(table.got == table.packed) << table.row_bytes;
      most = std::max(most, store.counts().read_bytes);
    }
  }
  EXPECT_GT(2 * kShards * ReadMemory::kPieceBytes, 2 * kMostReadBytes) << "all had room";
  EXPECT_GT(most, kMostReadBytes * 9 / 10);
  EXPECT_LE(most, kMostReadBytes + (1 << 20));  // one thread waits without memory
  EXPECT_LE(store.counts().read_bytes, kMostReadBytes);
}

TEST(SegmentStore, RowsOfABlockAreReadOnce) {
  io::FaultyFileSystem files;
  SegmentStore store(files, tiny_store({"/a"}));
  RowBacking& shard =
      store.add_shard({.key = 1, .rows = {0, 150, 1}, .row_bytes = 260, .table = "t"});
  std::vector<std::int64_t> rows;
  std::vector<std::byte> packed(150 * 260);
  for (std::int64_t row = 0; row < 150; ++row) {
    rows.push_back(row);
  }
  shard.write(rows, packed.data());
  store.retire(store.seal());
  const auto reads = shard.make_reads();
  std::vector<std::uint8_t> found(rows.size());
  reads->begin(rows, packed.data());
  reads->wait(found);
  const StoreCounts counts = store.counts();
  EXPECT_EQ(counts.rows_written, 150);
  EXPECT_EQ(counts.rows_stored, 150);
  EXPECT_EQ(counts.rows_asked, 150);
  EXPECT_EQ(counts.rows_read, 150);
  EXPECT_EQ(counts.groups_read, 10);
  EXPECT_EQ(counts.bytes_read, 10 * 4096);
  EXPECT_EQ(counts.segments, 1);
  EXPECT_EQ(counts.segments_made, 1);
  EXPECT_EQ(counts.segment_bytes, counts.bytes_written);
}

TEST(SegmentStore, ATableOfABillionRowsCostsNothingUntilRowsExist) {
  io::FaultyFileSystem files;
  SegmentStore store(files, tiny_store({"/a"}));
  constexpr std::int64_t kRows = 1'000'000'000;
  RowBacking& shard =
      store.add_shard({.key = 1, .rows = {1, 2 * kRows, 2}, .row_bytes = 260, .table = "t"});
  EXPECT_LT(store.counts().index_bytes, 100'000);
  EXPECT_TRUE(files.list("/a").names == std::vector<std::string>{"rows.lock"}) << "no file";
  const std::vector<std::int64_t> rows = {kRows - 1, 0};
  const std::vector<std::byte> packed(520, std::byte{3});
  shard.write(rows, packed.data());
  EXPECT_EQ(shard.rows_held(), 2);
  const auto reads = shard.make_reads();
  std::vector<std::byte> got(780);
  std::vector<std::uint8_t> found(3);
  const std::vector<std::int64_t> asked = {0, 1, kRows - 1};
  reads->begin(asked, got.data());
  reads->wait(found);
  EXPECT_EQ(found, (std::vector<std::uint8_t>{1, 0, 1}));
}

TEST(SegmentStore, SpaceStaysWithinItsFactor) {
  for (const double factor : {1.2, 1.5, 2.0}) {
    io::FaultyFileSystem files;
    SegmentStoreOptions options = tiny_store({"/a"});
    options.space_factor = factor;
    StoreModel model(files, options,
                     {{.key = 1, .rows = {0, 6000, 1}, .row_bytes = 260, .table = "t"}}, 3);
    std::int64_t most = 0;
    for (int i = 0; i < 200; ++i) {
      model.write(300);
      if (i > 80) {
        model.shard(0).drain();
        const StoreCounts counts = model.store().counts();
        // Of each segment a header, and what fills its last block.
        const std::int64_t rows_bytes = counts.segment_bytes - counts.segments * 8192;
        const double allowed = factor * static_cast<double>(counts.live_bytes);
        most = std::max(most, rows_bytes - static_cast<std::int64_t>(allowed));
      }
    }
    // Two that it may, and one or two that have been sealed since it was looked at.
    EXPECT_LT(most, 4 * options.segment_bytes) << factor;
    const StoreCounts counts = model.store().counts();
    EXPECT_GT(counts.segments, 10);
    EXPECT_GT(counts.segment_bytes, counts.live_bytes);
    model.read_all();
    EXPECT_EQ(model.wrong(), 0);
  }
}

TEST(SegmentStore, AShardMayComeLate) {
  io::FaultyFileSystem files;
  SegmentStore store(files, tiny_store({"/a"}));
  RowBacking& first =
      store.add_shard({.key = 1, .rows = {0, 10, 1}, .row_bytes = 8, .table = "first"});
  const std::vector<std::int64_t> rows = {3, 4};
  const std::vector<std::byte> packed(32, std::byte{1});
  first.write(rows, packed.data());
  first.drain();
  RowBacking& second =
      store.add_shard({.key = 2, .rows = {0, 10, 1}, .row_bytes = 16, .table = "second"});
  second.write(rows, packed.data());
  second.drain();
  for (RowBacking* shard : {&first, &second}) {
    std::int64_t visited = 0;
    shard->for_each_row([&](std::span<const std::int64_t> some) {
      visited += static_cast<std::int64_t>(some.size());
    });
    EXPECT_EQ(visited, 2);
  }
}

}  // namespace
}  // namespace weft::storage
