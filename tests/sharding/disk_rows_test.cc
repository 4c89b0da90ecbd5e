// Rows of ranks on disks: the folders that earlier jobs have left, the files that stay open, and
// loads by several threads.
#include "weft/sharding/disk_rows.h"

#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "weft/base/at.h"
#include "weft/base/error.h"
#include "weft/checkpoint/checkpoint.h"
#include "weft/checkpoint/state_hash.h"
#include "weft/comm/local/local.h"
#include "weft/embedding/table_shard.h"
#include "weft/io/process.h"
#include "weft/sharding/sharded_embeddings.h"

namespace weft::sharding {
namespace {

class RowsFolder {
 public:
  RowsFolder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "weft-disk-XXXXXX").string();
    path_ = mkdtemp(pattern.data());
  }

  ~RowsFolder() { std::filesystem::remove_all(path_); }

  RowsFolder(const RowsFolder&) = delete;
  RowsFolder& operator=(const RowsFolder&) = delete;

  [[nodiscard]] std::string at(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

spec::Table disk_table(std::int64_t rows, std::int64_t dim) {
  spec::Table table;
  table.name = "t";
  table.num_embeddings = rows;
  table.embedding_dim = dim;
  table.optimizer.type = SparseOptimizerKind::kRowWiseAdagrad;
  table.memory.tier = spec::MemoryTier::kSsd;
  return table;
}

/// One table on one rank, rows of which lie in `directory`.
spec::Config disk_config(const std::string& directory, const spec::Table& table) {
  spec::Config config;
  config.tables = {table};
  config.tiers.directories = {directory};
  config.tiers.cache_bytes = 1 << 20;
  config.tiers.segment_bytes = 1 << 16;
  return config;
}

spec::Plan disk_plan(const spec::Table& table) {
  spec::Plan plan;
  plan.ranks = 1;
  plan.tables.push_back(
      {.table = table.name,
       .sharding = spec::Sharding::kTableWise,
       .shards = {
           {.rank = 0, .rows = {0, table.num_embeddings}, .cols = {0, table.embedding_dim}}}});
  return plan;
}

void leave(const std::string& folder, const std::string& name) {
  std::filesystem::create_directories(folder);
  std::ofstream(folder + "/" + name) << "left";
}

const std::string kLeftSegment = "rows-0123456789abcdef-00000003.seg";

TEST(DiskRowsFolders, OfDeadRanksGoAndThoseOfLivingOnesStay) {
  const RowsFolder folder;
  const spec::Config config = disk_config(folder.at("rows"), disk_table(100, 4));
  leave(folder.at("rows/rank-0007"), kLeftSegment);
  leave(folder.at("rows/rank-0007"), "rows.lock");
  leave(folder.at("rows/rank-0008"), kLeftSegment);
  leave(folder.at("rows/rank-0009"), kLeftSegment);
  leave(folder.at("rows/rank-0009"), "notes");
  leave(folder.at("rows/rank-12"), kLeftSegment);
  leave(folder.at("rows/others"), kLeftSegment);
  leave(folder.at("rows"), "rank-0010");
  io::TakenLock living =
      io::LockFile::take(io::real_file_system(), {folder.at("rows/rank-0008/rows.lock"), 10});
  ASSERT_TRUE(living.lock);
  const DiskRows own(config, disk_plan(config.tables[0]), 0);
  DiskRows::remove_dead(config);
  EXPECT_TRUE(std::filesystem::exists(folder.at("rows/rank-0000/rows.lock"))) << "its own";
  EXPECT_FALSE(std::filesystem::exists(folder.at("rows/rank-0007")));
  EXPECT_TRUE(std::filesystem::exists(folder.at("rows/rank-0008/" + kLeftSegment))) << "locked";
  EXPECT_FALSE(std::filesystem::exists(folder.at("rows/rank-0009/" + kLeftSegment)));
  EXPECT_TRUE(std::filesystem::exists(folder.at("rows/rank-0009/notes"))) << "a person's";
  EXPECT_TRUE(std::filesystem::exists(folder.at("rows/rank-12/" + kLeftSegment)));
  EXPECT_TRUE(std::filesystem::exists(folder.at("rows/others/" + kLeftSegment)));
  EXPECT_TRUE(std::filesystem::exists(folder.at("rows/rank-0010")));
  living.lock.reset();
  DiskRows::remove_dead(config);
  EXPECT_FALSE(std::filesystem::exists(folder.at("rows/rank-0008"))) << "its job has ended";
}

/// A job does it at its start, on ranks that have rows on disks and on those that have none.
TEST(DiskRowsFolders, AJobRemovesThoseOfAnEarlierOne) {
  const RowsFolder folder;
  const spec::Config config = disk_config(folder.at("rows"), disk_table(100, 4));
  for (int rank = 0; rank < 5; ++rank) {
    leave(folder.at(fmt::format("rows/rank-000{}", rank)), kLeftSegment);
  }
  comm::run_local(2, {}, [&](comm::Communicator& world) {
    spec::Plan plan = disk_plan(config.tables[0]);
    plan.ranks = 2;
    plan.tables[0].shards.edit([](auto& shards) { shards[0].rank = 1; });
    const auto device = make_device({});
    const ShardedEmbeddings tables(config, plan, world, *device, {});
    Context ctx;
    world.barrier(ctx);
    for (const int rank : {0, 2, 3, 4}) {
      EXPECT_FALSE(std::filesystem::exists(folder.at(fmt::format("rows/rank-000{}", rank))));
    }
    EXPECT_TRUE(std::filesystem::exists(folder.at("rows/rank-0001/rows.lock")));
    world.barrier(ctx);
  });
}

/// Sets the soft limit on open files as long as it lives. The hard one could not be raised again.
class SoftLimit {
 public:
  explicit SoftLimit(rlim_t soft) {
    getrlimit(RLIMIT_NOFILE, &before_);
    rlimit limit = before_;
    limit.rlim_cur = soft;
    setrlimit(RLIMIT_NOFILE, &limit);
  }

  ~SoftLimit() { setrlimit(RLIMIT_NOFILE, &before_); }

  SoftLimit(const SoftLimit&) = delete;
  SoftLimit& operator=(const SoftLimit&) = delete;

 private:
  rlimit before_{};
};

TEST(DiskRowsFiles, TheLimitIsRaisedAsFarAsAllRowsNeed) {
  const SoftLimit low(400);
  const RowsFolder folder;
  const spec::Table table = disk_table(100'000, 16);  // some 110 segments with what is cleaned
  const spec::Config config = disk_config(folder.at("rows"), table);
  {
    DiskRows rows(config, disk_plan(table), 0);
    EXPECT_EQ(io::open_file_limits().soft, 400);
    rows.add_shard(table, {0, table.num_embeddings}, {0, table.embedding_dim});
    EXPECT_GT(io::open_file_limits().soft, 400 - 200);
    spec::Table more = table;
    more.name = "more";
    more.num_embeddings = 500'000;
    rows.add_shard(more, {0, more.num_embeddings}, {0, more.embedding_dim});
    EXPECT_GT(io::open_file_limits().soft, 1000);
  }
}

TEST(DiskRowsFiles, MoreThanTheHardLimitIsRefusedByName) {
  const std::int64_t hard = io::open_file_limits().hard;
  if (hard > (std::int64_t{1} << 23)) {
    GTEST_SKIP() << "no limit on open files that a store could meet";
  }
  const RowsFolder folder;
  // Rows of some 80 bytes in segments of 64 KiB: several times the limit.
  const spec::Table table = disk_table(hard * 4000, 16);
  const spec::Config config = disk_config(folder.at("rows"), table);
  DiskRows rows(config, disk_plan(table), 0);
  try {
    rows.add_shard(table, {0, table.num_embeddings}, {0, table.embedding_dim});
    FAIL() << "more files than can be open";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), ErrorCode::kResource);
    const std::string text = error.what();
    for (const std::string& part :
         {std::string("table 't'"), fmt::format("may have {} (ulimit -Hn)", hard),
          std::string("tiers.segment_bytes"), std::string("64.0 KiB")}) {
      EXPECT_NE(text.find(part), std::string::npos) << part << " in: " << text;
    }
  }
}

TEST(OpenFileClaims, AddUpAndAreGivenBack) {
  const std::int64_t hard = io::open_file_limits().hard;
  if (hard > (std::int64_t{1} << 40)) {
    GTEST_SKIP() << "no limit on open files";
  }
  io::OpenFileClaim one;
  EXPECT_EQ(one.set(hard / 2), 0);
  {
    io::OpenFileClaim other;
    EXPECT_GT(other.set(hard / 2), hard);
    EXPECT_EQ(other.set(hard / 4), 0);
    EXPECT_GT(one.set(hard - hard / 4), hard);
  }
  EXPECT_EQ(one.set(hard - hard / 4), 0) << "the other's is given back";
}

/// A table in some memory, on one rank.
struct Tier {
  Tier(const RowsFolder& folder, const std::string& name, spec::MemoryTier tier)
      : device(make_device({})), store(io::real_file_system(), options(folder, name)) {
    table = disk_table(60'000, 8);
    table.memory.tier = tier;
    embedding::TableShardOptions made;
    if (tier == spec::MemoryTier::kSsd) {
      made.backing = &store.add_shard(
          {.key = 1, .rows = {0, table.num_embeddings}, .row_bytes = 36, .table = "t"});
      made.cache_bytes = 200'000;
    }
    shard = std::make_unique<embedding::TableShard>(*device, table, RowSet{0, table.num_embeddings},
                                                    Range{0, 8}, 5, made);
  }

  static storage::SegmentStoreOptions options(const RowsFolder& folder, const std::string& name) {
    storage::SegmentStoreOptions options;
    options.directories = {folder.at(name)};
    options.segment_bytes = 1 << 18;
    return options;
  }

  [[nodiscard]] std::uint64_t hash() const {
    Context ctx{.device = device.get()};
    const StateSource* source = shard.get();
    const auto initial = [this](const StateItem& item, std::int64_t first, std::int64_t rows,
                                void* out) {
      shard->initial_state(item.kind == "weight" ? 0 : 1, first, rows, out);
      return true;
    };
    return checkpoint::hash_state(ctx, std::span(&source, 1), initial).state;
  }

  std::unique_ptr<Device> device;
  storage::SegmentStore store;
  spec::Table table;
  std::unique_ptr<embedding::TableShard> shard;
};

/// Writes a third of the rows, with values that `random` draws.
void change_rows(embedding::TableShard& shard, std::mt19937& random) {
  std::vector<std::int64_t> rows;
  std::vector<float> values;
  for (std::int64_t row = 0; row < 60'000; ++row) {
    if (random() % 3 == 0) {
      rows.push_back(row);
      for (int i = 0; i < 9; ++i) {
        values.push_back(static_cast<float>(random() % 1000));
      }
    }
  }
  shard.row_sink()->write_rows(rows, reinterpret_cast<const std::byte*>(values.data()));
}

TEST(LoadThreads, RowsInAnyMemoryHaveTheStateOfOneThread) {
  const RowsFolder folder;
  const std::vector<spec::MemoryTier> tiers = {spec::MemoryTier::kDense, spec::MemoryTier::kLazy,
                                               spec::MemoryTier::kSsd};
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    int number = 0;
    for (const spec::MemoryTier from : tiers) {
      Tier saved(folder, fmt::format("s{}", number), from);
      std::mt19937 random(3);
      checkpoint::Increments increments{.rows = {saved.shard->row_sink()}};
      checkpoint::SaveOptions options;
      options.directory = folder.at(fmt::format("ck{}", number));
      options.increments = &increments;
      options.increment_share = 100;
      options.segment_bytes = 300'000;
      for (int step = 1; step <= 3; ++step) {
        change_rows(*saved.shard, random);
        options.metadata.step = step;
        const StateSource* source = saved.shard.get();
        checkpoint::save(world, ctx, options, std::span(&source, 1));
      }
      for (const spec::MemoryTier to : tiers) {
        for (const int readers : {1, 4}) {
          Tier loaded(folder, fmt::format("l{}", ++number), to);
          StateSink* sink = loaded.shard.get();
          checkpoint::load(
              world, ctx,
              {.path = options.directory, .left_out = {}, .readers = readers, .reader_bytes = 1},
              std::span(&sink, 1));
          EXPECT_EQ(loaded.hash(), saved.hash()) << readers << " threads";
        }
      }
      ++number;
    }
  });
}

}  // namespace
}  // namespace weft::sharding
