// Seals: what was written is in files that stay, in an order in which the last row holds.
#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "tests/io/faulty_file_system.h"
#include "tests/storage/store_model.h"
#include "weft/base/at.h"
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
