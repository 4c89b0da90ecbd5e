// Seals: what was written is in files that stay, in an order in which the last row holds.
#include <atomic>
#include <chrono>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/faulty_file_system.h"
#include "tests/storage/store_model.h"
#include "weft/base/at.h"
#include "weft/rowfile/name_stream.h"
#include "weft/rowfile/segment_reader.h"
#include "weft/storage/segment_store.h"

namespace weft::storage {
namespace {

TEST(StoreSeal, HasAllRowsInTheOrderOfItsFiles) {
  for (std::uint32_t seed = 0; seed < 2; ++seed) {
    io::FaultyFileSystem files;
    StoreModel model(files, tiny_store({"/a", "/b"}), some_shards(), seed);

    struct Kept {
      Seal seal;
      std::vector<Versions> versions;
    };

    std::vector<Kept> kept;
    for (int round = 0; round < 8; ++round) {
      for (int i = 0; i < 30; ++i) {
        model.step();
      }
      kept.push_back({model.store().seal(), model.versions()});
      // Also after more has been written and cleaned.
      for (const Kept& one : kept) {
        EXPECT_EQ(model.wrong_in(one.seal, one.versions), 0) << "seed " << seed;
      }
      if (kept.size() > 2) {
        model.store().retire(kept.front().seal);
        kept.erase(kept.begin());
      }
    }
    EXPECT_EQ(model.wrong(), 0);
    EXPECT_GT(model.store().counts().rows_moved, 0);
    std::int64_t live = 0;
    std::int64_t held = 0;
    for (const SealedFile& file : kept.back().seal.files) {
      for (const std::int64_t rows : file.live_rows) {
        live += rows;
      }
    }
    for (const Versions& versions : kept.back().versions) {
      held += static_cast<std::int64_t>(versions.size());
    }
    EXPECT_EQ(live, held);
  }
}

/// A crash of the machine takes nothing from a seal.
TEST(StoreSeal, IsDurable) {
  io::FaultyFileSystem files;
  StoreModel model(files, tiny_store({"/a", "/b"}), some_shards(), 4);
  for (int i = 0; i < 100; ++i) {
    model.write(50);
  }
  const Seal seal = model.store().seal();
  const std::vector<Versions> versions = model.versions();
  model.write(50);
  files.crash(io::Survival::kNothing);
  EXPECT_EQ(model.wrong_in(seal, versions), 0);
}

/// Rows are written again while a seal waits for the disk, at each call to it: the seal has them as
/// they were when it began. It begins while the store's thread is held up, and chunks wait for it.
TEST(StoreSeal, IsOfTheMomentInWhichItWasCalled) {
  for (std::uint32_t seed = 0; seed < 5; ++seed) {
    io::FaultyFileSystem files;
    SegmentStoreOptions options = tiny_store({"/a"});
    options.write_buffer_bytes = 4 << 20;  // the hook writes on the store's thread: it may not wait
    StoreModel model(files, options, some_shards(), seed);
    for (int i = 0; i < 150; ++i) {
      model.write(60);
    }
    model.shard(0).drain();
    std::atomic<bool> is_held_up = false;
    std::atomic<bool> is_over = false;
    std::int64_t writes = 0;
    files.set_hook([&](const io::Call& call) {
      if (!call.changes() || is_over) {
        return io::Verdict{};
      }
      is_held_up = true;
      while (model.store().counts().seals == 0) {
        std::this_thread::sleep_for(std::chrono::microseconds(50));
      }
      if (++writes < 60) {
        model.write(30);
      }
      is_over = call.kind == io::CallKind::kSyncDirectory;  // the last of a seal
      return io::Verdict{};
    });
    for (int i = 0; i < 5 || !is_held_up; ++i) {
      model.write(60);
    }
    const std::vector<Versions> versions = model.versions();
    const Seal seal = model.store().seal();
    EXPECT_GT(writes, 5);
    EXPECT_EQ(model.wrong_in(seal, versions), 0) << "seed " << seed;
    model.store().retire(seal);
    model.read_all();
    EXPECT_EQ(model.wrong(), 0);
  }
}

TEST(StoreSeal, FilesGoWhenTheyAreRetiredAndNoRowHolds) {
  io::FaultyFileSystem files;
  SegmentStore store(files, tiny_store({"/a"}));
  RowBacking& shard = store.add_shard({.key = 1, .rows = {0, 4, 1}, .row_bytes = 8, .table = "t"});
  const std::vector<std::int64_t> rows = {0, 1, 2, 3};
  const std::vector<std::byte> packed(32, std::byte{1});
  shard.write(rows, packed.data());
  const Seal first = store.seal();
  ASSERT_EQ(first.files.size(), 1U);
  EXPECT_EQ(first.files[0].live_rows, std::vector<std::int64_t>{4});
  shard.write(rows, packed.data());
  const Seal second = store.seal();
  ASSERT_EQ(second.files.size(), 1U);
  EXPECT_EQ(files.status(first.files[0].path).kind, io::Kind::kFile) << "it is pinned";
  store.retire(first);
  // A seal comes before cleaning, so the second of two finds it done.
  store.retire(store.seal());
  shard.drain();
  shard.write(rows, packed.data());
  store.retire(store.seal());
  shard.write(rows, packed.data());
  shard.drain();
  EXPECT_EQ(files.status(first.files[0].path).kind, io::Kind::kMissing);
  EXPECT_EQ(files.status(second.files[0].path).kind, io::Kind::kFile);
  store.retire(second);
}

std::vector<std::int64_t> rows_from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> rows(at(count));
  std::iota(rows.begin(), rows.end(), first);
  return rows;
}

/// The seals of checkpoints, which are waited for later.
TEST(StoreSeal, OfFilesSaysWhichAreNewSinceTheMarkedOne) {
  io::FaultyFileSystem files;
  SegmentStore store(files, tiny_store({"/a"}));
  RowBacking& shard = store.add_shard({.key = 9, .rows = {0, 40, 2}, .row_bytes = 8, .table = "t"});
  EXPECT_EQ(shard.files(), &store.files());
  EXPECT_EQ(store.files().streams(), (std::vector<RowFileStream>{{9, 8}}));
  const std::vector<std::byte> packed(20 * 8, std::byte{1});
  shard.write(rows_from(0, 20), packed.data());
  EXPECT_GE(store.files().new_bytes(), 20 * 8);
  auto first = store.files().make_seal();
  first->begin();
  // What is written behind the beginning is in later files, whenever the seal is waited for.
  shard.write(rows_from(0, 3), packed.data());
  shard.drain();
  ASSERT_EQ(first->wait().size(), 1U);
  const RowFile file = first->wait()[0];
  EXPECT_TRUE(file.is_new) << "none has been marked";
  EXPECT_EQ(file.rows, 20);
  const rowfile::SegmentReader reader(files, file.path);
  EXPECT_EQ(reader.rows(), 20);
  EXPECT_EQ(reader.bytes(), file.bytes);
  const std::string name = file.path.substr(file.path.rfind('/') + 1);
  EXPECT_EQ(reader.streams(), (std::vector<rowfile::Stream>{rowfile::name_stream(name), {9, 8}}));
  EXPECT_EQ(reader.streams()[0].key, file.key);
  // Before and after it is marked; marks may come before the seal is done.
  for (const bool is_marked : {false, true}) {
    if (is_marked) {
      first->mark();
    }
    auto next = store.files().make_seal();
    next->begin();
    ASSERT_EQ(next->wait().size(), 2U);
    EXPECT_EQ(next->wait()[0].is_new, !is_marked);
    EXPECT_TRUE(next->wait()[1].is_new);
    EXPECT_EQ(next->wait()[1].rows, 3);
  }
  first.reset();
  {
    const auto marked = store.files().make_seal();
    marked->begin();
    marked->mark();
  }
  auto last = store.files().make_seal();
  last->begin();
  for (const RowFile& one : last->wait()) {
    EXPECT_FALSE(one.is_new) << "given up before it was done, and marked";
  }
  EXPECT_EQ(store.files().new_bytes(), 0);
}

/// Cleaning moves rows to new files, and says so; from a seal's making to its end it stands still.
TEST(StoreSeal, OfFilesSaysWhetherRowsHaveMoved) {
  io::FaultyFileSystem files;
  StoreModel model(files, tiny_store({"/a"}), some_shards(), 3);
  RowFiles& below = model.store().files();
  const auto mark = [&] {
    const auto seal = below.make_seal();
    seal->begin();
    seal->mark();
    seal->wait();
    return model.store().counts().rows_moved;
  };
  std::int64_t with = 0;
  std::int64_t without = 0;
  for (int round = 0; round < 30; ++round) {
    const std::int64_t before = mark();
    for (int i = 0; i < round % 6 * 5; ++i) {
      model.write(60);
    }
    const auto seal = below.make_seal();
    const bool has_moved = seal->has_moved_rows();
    model.write(40);
    const std::int64_t moved = model.store().counts().rows_moved - before;
    seal->begin();
    const std::vector<Versions> versions = model.versions();
    model.write(20);
    Seal files_of;
    for (const RowFile& file : seal->wait()) {
      static_cast<RowFile&>(files_of.files.emplace_back()) = file;
    }
    EXPECT_EQ(model.wrong_in(files_of, versions), 0);
    EXPECT_TRUE(has_moved || moved == 0) << moved << " rows in round " << round;
    (has_moved ? with : without) += 1;
  }
  EXPECT_GT(with, 0);
  EXPECT_GT(without, 0);
}

/// Many seals leave many small segments, which are put together.
TEST(StoreSeal, SmallSegmentsArePutTogether) {
  io::FaultyFileSystem files;
  StoreModel model(files, tiny_store({"/a"}),
                   {{.key = 1, .rows = {0, 20000, 1}, .row_bytes = 100, .table = "t"}}, 1);
  for (int i = 0; i < 100; ++i) {
    model.write(3);
    model.store().retire(model.store().seal());
  }
  model.write(3);
  model.shard(0).drain();
  EXPECT_LT(model.store().counts().segments, 25);
  model.read_all();
  EXPECT_EQ(model.wrong(), 0);
}

}  // namespace
}  // namespace weft::storage
