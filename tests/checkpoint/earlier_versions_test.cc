// Checkpoints that earlier versions have written: tests/checkpoint/earlier, two steps of one small
// job, by Weft at format versions 1 (one rank), 2 (two ranks, rows cut modulo) and 3 (as 2).
#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "tests/checkpoint/memory_state.h"

namespace weft::checkpoint {
namespace {

std::string earlier(int version) {
  return fmt::format("{}/tests/checkpoint/earlier/version-{}", WEFT_SOURCE_DIR, version);
}

/// All bytes of a checkpoint, by item.
std::map<std::string, std::vector<std::byte>> loaded(const std::string& path) {
  const Manifest manifest = read_manifest(path);
  MemoryState state;
  for (const StoredItem& item : manifest.items) {
    state.add({item.parameter, item.kind, item.dtype, item.rows, item.cols}, {0, item.rows},
              {0, item.cols}, 1);
  }
  comm::run_local(1, {}, [&](comm::Communicator& world) {
    Context ctx;
    StateSink* sink = &state;
    load(world, ctx, {path}, std::span(&sink, 1));
  });
  std::map<std::string, std::vector<std::byte>> bytes;
  const std::vector<StateItem> items = state.state_items();
  for (std::size_t i = 0; i < items.size(); ++i) {
    std::vector<std::byte>& own = bytes[item_name(items[i].parameter, items[i].kind)];
    own.resize(static_cast<std::size_t>(items[i].rows * items[i].cols * size_of(items[i].dtype)));
    state.read_state(i, 0, items[i].rows, own.data());
  }
  return bytes;
}

TEST(EarlierVersions, AreLoadedAndHoldTheSameJob) {
  for (const int version : {1, 2, 3}) {
    const Metadata metadata = read_manifest(earlier(version)).metadata;
    EXPECT_EQ(metadata.step, 2);
    EXPECT_EQ(metadata.row_draws, 1) << "they do not say";
    EXPECT_EQ(metadata.ranks, version == 1 ? 1 : 2);
    if (version < 3) {
      EXPECT_EQ(metadata.lineage, Lineage{}) << "they know no job";
      EXPECT_FALSE(metadata.data);
    } else {
      EXPECT_EQ(metadata.lineage.save_number, 1);
      EXPECT_TRUE(metadata.data);
    }
  }
  const auto one = loaded(earlier(1));
  EXPECT_GE(one.size(), 5U);
  EXPECT_TRUE(one.contains("tables.a weight"));
  EXPECT_EQ(one, loaded(earlier(2)));
  EXPECT_EQ(one, loaded(earlier(3)));
}

/// A job that was written by version 3 goes on as itself.
TEST(EarlierVersions, TheLastKnowsItsJob) {
  const TemporaryDirectory directory;
  Folder folder({.directory = directory.path()});
  folder.resume_job(earlier(3));
  EXPECT_EQ(folder.lineage().job_id, read_manifest(earlier(3)).metadata.lineage.job_id);
  EXPECT_EQ(folder.lineage().save_number, 2);
}

/// A job goes on from one of them in a folder of its own, and has an id from then on.
TEST(EarlierVersions, AreGoneOnFrom) {
  const TemporaryDirectory directory;
  Folder folder({.directory = directory.path()});
  folder.resume_job(earlier(1));
  EXPECT_NE(folder.lineage().job_id, 0U);
  EXPECT_EQ(folder.lineage().save_number, 1);
  EXPECT_EQ(folder.lineage().parent_name, "version-1");
  SaveOptions options = save_options(directory.path(), 10);
  options.folder = &folder;
  save_all(options, small_matrices(), 1, 2);
  EXPECT_EQ(read_manifest(directory.path()).metadata.lineage.parent_name, "version-1");
}

}  // namespace
}  // namespace weft::checkpoint
